"""docs/metrics.md says what the proxy exports, and nothing else."""

import re
from pathlib import Path

from giveway_admission.metric_names import FAMILIES
from giveway_admission.metrics import Metrics
from giveway_policy.defaults import default_document
from prometheus_client.parser import text_string_to_metric_families

from tests.admission.admin_support import Policy, engine_reading, statistics

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \| ([^|]+) \|$", re.MULTILINE)


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    return {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels, _ in ROW.findall(DOCUMENT.read_text("utf-8"))
    }


def test_document_lists_every_metric_with_type_and_labels() -> None:
    """Name, type and labels as in the code, each once."""
    rows = ROW.findall(DOCUMENT.read_text("utf-8"))
    assert len(rows) == len(documented())
    assert documented() == {family.name: (family.kind.value, family.labels) for family in FAMILIES}


def test_page_shows_every_metric_of_the_list_and_no_other() -> None:
    """What is exported is what is listed (the process's own metrics aside)."""
    metrics = Metrics(version="1.2.3")
    metrics.configure(Policy(default_document()))
    reading = engine_reading(requests_total=1.0, preemptions_total=1.0, kv_cache_usage_ratio=0.5)
    metrics.set_sources(statistics, engine_up=lambda: True, engine=lambda: reading)
    exported: dict[str, tuple[str, set[str]]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        if not family.name.startswith(("process_", "python_")):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            assert family.documentation
            exported[name] = (family.type, labels)
    assert exported == {name: (kind, set(labels)) for name, (kind, labels) in documented().items()}


def test_every_name_follows_the_conventions() -> None:
    """Base units, `_total` for counters and for nothing else."""
    for family in FAMILIES:
        assert re.fullmatch(r"giveway_[a-z_]+", family.name)
        assert family.name.endswith("_total") == (family.kind.value == "counter")
        assert not re.search(r"milliseconds|_ms|percent|_kb", family.name)
