"""In which class is a request served, and can anybody get a higher one?"""

import pytest
from giveway_admission.classifying import Classifier
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.policy_documents import CLASSES, document, tenant

TRUSTED = ("X-Giveway-Class", "X-Giveway-Source")

REALTIME, STANDARD, BATCH = range(3)


def _classifier(*, trusted: tuple[str, ...] = TRUSTED, batch: bool = True) -> Classifier:
    return Classifier.build(
        document(
            tenants=(
                tenant("high", maximum_class="realtime", default_class="standard"),
                tenant(
                    "middle",
                    maximum_class="standard",
                    sources=(("nightly", "batch"), ("evaluation", "standard")),
                ),
                tenant("low", maximum_class="batch", sources=(("chat", "batch"),)),
            ),
            trusted_headers=trusted,
            batch=batch,
        )
    )


def _find(
    name: str,
    *,
    asked: bytes | None = None,
    source: bytes | None = None,
    tier: str | None = None,
    classifier: Classifier | None = None,
) -> tuple[int, bool]:
    classifier = classifier or _classifier()
    headers = {}
    if asked is not None:
        headers[b"x-giveway-class"] = asked
    if source is not None:
        headers[b"x-giveway-source"] = source
    return classifier.find(classifier.rules(name), headers, service_tier=tier)


def test_tenants_of_equal_classes_and_sources_share_their_rules() -> None:
    """Ten thousand tenants cost one table of the policy's sources, and not ten thousand."""
    tenants = (*(tenant(name, maximum_class="standard") for name in "ab"), tenant("c"))
    classifier = Classifier.build(document(tenants=tenants))
    assert classifier.rules("a") is classifier.rules("b")
    assert classifier.rules("a") is not classifier.rules("c")


@pytest.mark.parametrize(
    ("name", "asked", "source", "tier", "rank"),
    [
        ("high", None, None, None, STANDARD),
        ("high", b"realtime", None, None, REALTIME),
        ("high", b"batch", None, None, BATCH),
        ("high", b"batch", b"chat", "priority", BATCH),
        ("high", None, b"chat", None, REALTIME),
        ("high", None, b"evaluation", None, BATCH),
        ("high", None, b"unheard-of", None, STANDARD),
        ("high", None, None, "priority", REALTIME),
        ("high", None, b"evaluation", "priority", REALTIME),
        ("high", None, None, "flex", BATCH),
        ("high", None, b"chat", "flex", BATCH),
        ("high", None, b"chat", "auto", REALTIME),
        ("high", None, b"chat", "default", REALTIME),
        ("high", None, None, "standard_only", STANDARD),
        ("middle", None, None, None, STANDARD),
        ("middle", b"realtime", None, None, STANDARD),
        ("middle", None, b"chat", None, STANDARD),
        ("middle", None, None, "priority", STANDARD),
        ("middle", None, b"nightly", None, BATCH),
        ("middle", None, b"evaluation", None, STANDARD),
        ("low", b"realtime", b"chat", "priority", BATCH),
        ("low", None, b"chat", None, BATCH),
        ("nobody", None, None, None, BATCH),
        ("nobody", None, b"translation", None, STANDARD),
        ("nobody", b"realtime", None, None, STANDARD),
        ("nobody", None, None, "priority", STANDARD),
    ],
)
def test_the_class_is_asked_for_stated_or_given(
    name: str, asked: bytes | None, source: bytes | None, tier: str | None, rank: int
) -> None:
    """Asked, else service_tier, else source, else the default; never above the ceiling (H1)."""
    assert _find(name, asked=asked, source=source, tier=tier) == (rank, False)


@pytest.mark.parametrize("asked", [b"urgent", b"", b"REALTIME", b"realtime, batch", b"\xff", b"0"])
def test_a_class_that_does_not_exist_counts_as_not_asked(asked: bytes) -> None:
    """And is counted; also two classes in one header are none."""
    assert _find("high", asked=asked) == (STANDARD, True)
    assert _find("high", asked=asked, source=b"chat") == (REALTIME, True)
    assert _find("high", asked=asked, tier="flex") == (BATCH, True)


def test_headers_that_are_not_trusted_say_nothing() -> None:
    """Trust is the policy's to give (G01)."""
    classifier = _classifier(trusted=())
    assert _find("high", asked=b"realtime", source=b"chat", classifier=classifier) == (
        STANDARD,
        False,
    )
    assert _find("high", asked=b"nonsense", classifier=classifier) == (STANDARD, False)


def test_flex_without_a_batch_class_is_as_if_nothing_was_asked() -> None:
    """There is no class to give."""
    assert _find("high", tier="flex", classifier=_classifier(batch=False)) == (STANDARD, False)


def test_the_fallback_tenant_has_its_class_from_the_policy() -> None:
    """A tenant's entry of the same name brings limits and sources and no ceiling of its own."""
    classifier = Classifier.build(
        document(
            tenants=(tenant("anonymous", maximum_class="realtime", sources=(("x", "standard"),)),),
            trusted_headers=TRUSTED,
        )
    )
    assert _find("anonymous", tier="priority", classifier=classifier)[0] == STANDARD
    assert _find("anonymous", source=b"x", classifier=classifier)[0] == STANDARD
    assert _find("anonymous", classifier=classifier)[0] == BATCH


def test_a_class_that_the_policy_does_not_have_counts_as_the_lowest() -> None:
    """A document that fits badly gives too little and never too much."""
    classifier = Classifier.build(document(tenants=(tenant("odd", maximum_class="vip"),)))
    assert classifier.rules("odd").ceiling == BATCH
    assert _find("odd", tier="priority", classifier=classifier)[0] == BATCH


@given(
    name=st.sampled_from(["high", "middle", "low", "nobody"]),
    asked=st.one_of(st.none(), st.binary(max_size=20), st.sampled_from([b"realtime", b"batch"])),
    source=st.one_of(st.none(), st.binary(max_size=20), st.sampled_from([b"chat", b"nightly"])),
    tier=st.one_of(st.none(), st.text(max_size=10), st.sampled_from(["priority", "flex"])),
    trusts=st.booleans(),
)
def test_nothing_lifts_a_request_above_its_ceiling(
    name: str, asked: bytes | None, source: bytes | None, tier: str | None, *, trusts: bool
) -> None:
    """Whatever a client combines (G01)."""
    classifier = _classifier(trusted=TRUSTED if trusts else ())
    ceiling = {"high": REALTIME, "middle": STANDARD, "low": BATCH, "nobody": STANDARD}[name]
    rank, _ = _find(name, asked=asked, source=source, tier=tier, classifier=classifier)
    assert ceiling <= rank < len(CLASSES)
