"""What do the proxy's metrics say?

Reads a Prometheus text page into values that a test can ask for by name and labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from tests.support.raw_client import ask


@dataclass(frozen=True, slots=True)
class Samples:
    """One scrape."""

    values: Sequence[tuple[str, dict[str, str], float]]

    def matching(self, name: str, **labels: str) -> list[float]:
        """Values of all samples with this name and at least these labels."""
        return [
            value
            for sample, given, value in self.values
            if sample == name and labels.items() <= given.items()
        ]

    def total(self, name: str, **labels: str) -> float:
        """Their sum; 0.0 if there is none."""
        return sum(self.matching(name, **labels))

    def value(self, name: str, **labels: str) -> float:
        """The one sample that matches; fails if there is none or more than one."""
        found = self.matching(name, **labels)
        assert len(found) == 1, f"{name} {labels}: {len(found)} samples"
        return found[0]


def parse_samples(text: str) -> Samples:
    """A page in Prometheus' text format."""
    families = text_string_to_metric_families(text)
    return Samples(
        [
            (sample.name, dict(sample.labels), float(sample.value))
            for family in families
            for sample in family.samples
        ]
    )


async def scrape(admin_url: str) -> Samples:
    """Fetch /metrics and read it."""
    answer = await ask(admin_url, "/metrics")
    assert answer.status == 200, answer
    return parse_samples(answer.body.decode())


async def is_idle(admin_url: str) -> bool:
    """Nothing queued, nothing running, nothing waiting for its prefill."""
    samples = await scrape(admin_url)
    gauges = ("giveway_queue_requests", "giveway_running_requests", "giveway_unprefilled_tokens")
    return all(samples.matching(name) for name in gauges) and not any(
        samples.total(name) for name in gauges
    )


async def outcomes(admin_url: str) -> dict[str, float]:
    """How many requests ended in each way, all classes together, without the ways at 0."""
    samples = await scrape(admin_url)
    counts: dict[str, float] = {}
    for name, labels, value in samples.values:
        if name == "giveway_requests_total" and value:
            counts[labels["outcome"]] = counts.get(labels["outcome"], 0.0) + value
    return counts


async def queued(admin_url: str) -> int:
    """How many requests wait, all classes together."""
    return int((await scrape(admin_url)).total("giveway_queue_requests"))


async def queue_has(admin_url: str, count: int) -> bool:
    """Do exactly `count` requests wait? For `until`."""
    return await queued(admin_url) == count
