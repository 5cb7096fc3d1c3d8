"""The examples and the built-in default say what their comments and the documentation claim."""

from pathlib import Path

import pytest
from giveway_policy.compiling import compile_policies
from giveway_policy.defaults import default_document
from giveway_policy.documents import PolicyDocument
from giveway_policy.loading import load_path

EXAMPLES = Path(__file__).parents[2] / "examples"


def _compiled(name: str) -> PolicyDocument:
    loading = load_path(EXAMPLES / name)
    compilation = compile_policies(loading.policies, loading.tenants)
    assert [*loading.faults, *loading.notes, *compilation.faults] == []
    (document,) = compilation.documents
    return document


@pytest.mark.parametrize("file", sorted(each.name for each in EXAMPLES.glob("*.yaml")))
def test_every_example_is_right(file: str) -> None:
    assert _compiled(file).spec.classes


def test_all_three_situations_are_there() -> None:
    names = {_compiled(each.name).policy.name for each in EXAMPLES.glob("*.yaml")}
    assert {"chat-and-batch", "free-and-paid", "agents"} <= names


def test_paying_tenants_are_known_by_key_or_header() -> None:
    document = _compiled("free-and-paid.yaml")
    acme, free, initech = document.tenants
    assert (acme.name, len(acme.key_digests), acme.weight) == ("acme", 2, 4)
    assert (free.name, len(free.key_digests), free.maximum_class) == ("free-plan", 1, "free")
    assert initech.headers == (("x-customer", "initech"),)


def test_the_keys_of_the_examples_are_obviously_fake() -> None:
    for file in (EXAMPLES / "keys").iterdir():
        text = file.read_text()
        assert text.startswith("# Example only")
        keys = [line for line in text.splitlines() if not line.startswith("#")]
        assert keys
        assert all("not-a-secret" in key for key in keys)


def test_the_built_in_policy_is_the_published_one() -> None:
    """H1, H2, H3, H4, H5, H6: classes, objectives, limits, over the limit, queues, weights."""
    spec = default_document().spec
    assert [(each.name, each.weight) for each in spec.classes] == [
        ("realtime", 70),
        ("standard", 25),
        ("batch", 5),
    ]
    limits = [each.limits for each in spec.classes]
    assert [each.requests_per_second for each in limits] == [200, 100, 50]
    assert [each.request_burst for each in limits] == [200, 100, 50]
    assert [each.over_limit for each in spec.classes] == ["Reject", "Reject", "Queue"]
    assert [each.queue.capacity for each in spec.classes] == [5000, 5000, 5000]
    assert [
        [(one.threshold_milliseconds, one.target_percent) for one in each.objectives]
        for each in spec.classes
    ] == [[(300, "99")], [(1000, "99")], []]


@pytest.mark.parametrize(
    ("source", "class_name"),
    [
        ("realtime-chat", "realtime"),
        ("code-completion", "realtime"),
        ("search-summary", "realtime"),
        ("document-polishing", "standard"),
        ("translation", "standard"),
        ("data-analysis", "standard"),
        ("evaluation", "batch"),
        ("embedding", "batch"),
        ("offline-inference", "batch"),
    ],
)
def test_the_built_in_policy_knows_the_published_sources(source: str, class_name: str) -> None:
    """H1: nine sources; what is unknown is batch."""
    spec = default_document().spec
    assert {each.source: each.class_name for each in spec.sources}[source] == class_name
    assert spec.identity.fallback_default_class == "batch"
    assert spec.identity.fallback_class == "realtime"
    assert "X-Giveway-Tenant" not in spec.identity.trusted_headers
