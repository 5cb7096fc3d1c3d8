"""How do numbers become the text that Prometheus reads?

The text format 0.0.4, written directly: a page of some thousand series costs a few milliseconds,
during which no stream moves. (`prometheus_client` builds an object and a dictionary per sample and
takes ten times as long; its parser checks this module in the tests.)

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from giveway_admission.histograms import HistogramFamily

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Name, type, meaning and labels of one metric."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()

    def header(self) -> str:
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind.value}\n"

    def series(self, *values: str) -> str:
        """`name{label="value",...}`, escaped; `values` in the order of `labels`."""
        if not self.labels:
            return self.name
        return f"{self.name}{{{self.pairs(*values)}}}"

    def pairs(self, *values: str) -> str:
        return ",".join(
            f'{label}="{value.translate(_ESCAPES)}"'
            for label, value in zip(self.labels, values, strict=True)
        )


def write_family(family: Family, samples: Iterable[tuple[str, float]]) -> str:
    """`samples` are (series, value) with `series` as `Family.series` makes it."""
    lines = [f"{series} {_number(value)}\n" for series, value in samples]
    return family.header() + "".join(lines)


def write_histograms(family: Family, histograms: HistogramFamily) -> str:
    """One histogram per label value; `family` has exactly one label."""
    parts = [family.header()]
    bounds = [f'{bound!r}"}}' for bound in histograms.bounds]
    for label, child in histograms:
        parts.append(_histogram(family.name, family.pairs(label), bounds, child.counts))
        parts.append(f"{family.series(label).replace('{', '_sum{', 1)} {child.sum!r}\n")
        parts.append(f"{family.series(label).replace('{', '_count{', 1)} {child.count}\n")
    return "".join(parts)


def _histogram(name: str, pairs: str, bounds: Sequence[str], counts: Sequence[int]) -> str:
    lines: list[str] = []
    total = 0
    for bound, count in zip(bounds, counts, strict=False):
        total += count
        lines.append(f'{name}_bucket{{{pairs},le="{bound} {total}\n')
    lines.append(f'{name}_bucket{{{pairs},le="+Inf"}} {total + counts[-1]}\n')
    return "".join(lines)


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
