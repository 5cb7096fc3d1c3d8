"""The policy document: canonical, hashed, versioned, and never read half."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from giveway_policy.compiling import Candidate, compile_policies
from giveway_policy.credentials import digest_key
from giveway_policy.defaults import default_document, default_spec
from giveway_policy.documents import (
    LARGEST_DOCUMENT_BYTES,
    DocumentError,
    PolicyDocument,
    PolicyName,
    Tenant,
    document_json,
    make_document,
    parse_document,
    renumber,
)
from giveway_policy.faults import FaultKind, Origin, ResourceKey
from giveway_policy.loading import load_path
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.policy_texts import valid_policy, valid_tenant
from tests.policy.resource_strategies import policies, tenants

GOLDEN = Path(__file__).parent / "golden"


def _golden_document() -> PolicyDocument:
    loading = load_path(GOLDEN / "resources.yaml")
    assert loading.faults == []
    compilation = compile_policies(loading.policies, loading.tenants, epoch=3, generation=17)
    assert compilation.faults == ()
    return compilation.documents[0]


def _changed(**fields: object) -> bytes:
    """The default document's JSON with top-level fields replaced; None removes one."""
    plain = json.loads(document_json(default_document()))
    for name, value in fields.items():
        plain[name] = value
        if value is None:
            del plain[name]
    return json.dumps(plain).encode()


def _signed(**fields: object) -> bytes:
    """The same, with the hash that belongs to it."""
    return _signed_content(json.loads(_changed(**fields)))


def _signed_content(content: dict[str, object]) -> bytes:
    hashed = {key: content[key] for key in content if key not in ("hash", "epoch", "generation")}
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    content["hash"] = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps(content).encode()


def test_the_document_of_format_1_is_as_it_always_was() -> None:
    """Other versions of giveway hold documents like this: not a byte may change in format 1."""
    golden = (GOLDEN / "document-format-1.json").read_text()
    assert document_json(_golden_document()) == golden
    assert parse_document(golden.encode()) == _golden_document()


def test_a_field_that_the_writer_did_not_know_takes_its_default() -> None:
    """So a proxy that is newer than the operator goes on reading what that one writes."""
    content = json.loads(document_json(_golden_document()))
    del content["spec"]["scheduling"]["interactiveFirst"]["rateSignal"]
    document = parse_document(_signed_content(content))
    assert document.spec == _golden_document().spec


def test_no_key_is_in_the_document() -> None:
    """Credentials never leave their file: only digests do."""
    text = document_json(_golden_document())
    assert "golden-key" not in text
    assert digest_key(b"golden-key-1") in text
    assert digest_key(b"golden-key-2") in text


def test_tenants_are_complete_and_by_name() -> None:
    """A tenant's class by default is its ceiling; headers are in lower case."""
    acme, zeta = _golden_document().tenants
    assert (acme.name, acme.maximum_class, acme.default_class) == ("acme", "realtime", "realtime")
    assert acme.headers == (("x-tenant", "acme"),)
    assert acme.limits.request_burst == 50
    assert acme.limits.token_burst == 83_334  # 500,000 / 60 x 10, rounded up
    assert (zeta.name, zeta.default_class, zeta.weight) == ("zeta", "batch", 1)


def test_equal_content_has_an_equal_hash_whatever_its_number() -> None:
    document = default_document()
    later = renumber(document, epoch=4, generation=9)
    assert later.hash == document.hash
    assert later.order == (4, 9)
    assert parse_document(document_json(later).encode()) == later


def test_other_content_has_another_hash() -> None:
    """Also if only the share, a weight or one tenant differs."""
    name, spec = PolicyName(name="x"), default_spec()
    tenant = Tenant(name="t", maximum_class="batch", default_class="batch")
    hashes = {
        make_document(name, spec).hash,
        make_document(name, spec, share=0.5).hash,
        make_document(name, spec, weights={"batch": 6.0}).hash,
        make_document(name, spec, weights={"batch": 6.5}).hash,
        make_document(name, spec, tenants=(tenant,)).hash,
        make_document(PolicyName(name="y"), spec).hash,
    }
    assert len(hashes) == 6


def test_weights_that_were_decided_stand_beside_those_of_the_policy() -> None:
    """A class that is not named keeps the policy's weight; so does everyone without any."""
    spec = default_spec()
    document = make_document(PolicyName(name="x"), spec, weights={"standard": 31.25})
    assert parse_document(document_json(document).encode()) == document
    assert document.class_weights == {"realtime": 70.0, "standard": 31.25, "batch": 5.0}
    assert default_document().class_weights == {"realtime": 70.0, "standard": 25.0, "batch": 5.0}


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ({"other": 6.0}, "there is no such class"),
        ({"realtime": 0.0, "standard": 0.0, "batch": 0.0}, "all are 0"),
    ],
    ids=["unknown", "all 0"],
)
def test_no_document_is_made_with_weights_that_do_not_fit_its_classes(
    weights: dict[str, float], says: str
) -> None:
    with pytest.raises(DocumentError, match=says):
        make_document(PolicyName(name="x"), default_spec(), weights=weights)


@pytest.mark.parametrize(("older", "newer"), [((0, 5), (1, 1)), ((1, 1), (1, 2)), ((0, 0), (0, 1))])
def test_the_epoch_counts_more_than_the_generation(
    older: tuple[int, int], newer: tuple[int, int]
) -> None:
    first = renumber(default_document(), epoch=older[0], generation=older[1])
    second = renumber(default_document(), epoch=newer[0], generation=newer[1])
    assert first.order < second.order


@pytest.mark.parametrize(
    ("data", "kind", "says"),
    [
        (b"", FaultKind.UNREADABLE, "not JSON"),
        (b"{", FaultKind.UNREADABLE, "not JSON"),
        (b"\xff\xfe{}", FaultKind.UNREADABLE, "not JSON"),
        (b"[]", FaultKind.UNREADABLE, "not an object"),
        (b"[" * 100_000, FaultKind.UNREADABLE, "not JSON"),
        (b'{"format": ' + b"9" * 5000 + b"}", FaultKind.UNREADABLE, "not JSON"),
        (b"{}", FaultKind.FORMAT, "no format"),
        (_changed(format=0), FaultKind.FORMAT, "format is 0, this giveway reads format 1"),
        (_changed(format=2), FaultKind.FORMAT, "format is 2, this giveway reads format 1"),
        (_changed(format=True), FaultKind.FORMAT, "format is True"),
        (_changed(format="1"), FaultKind.FORMAT, "format is 1"),
        (_changed(epoch=None), FaultKind.SCHEMA, "epoch"),
        (_changed(epoch=-1), FaultKind.SCHEMA, "epoch"),
        (_changed(share=0), FaultKind.SCHEMA, "share"),
        (_changed(share=float("nan")), FaultKind.SCHEMA, "share"),
        (_changed(surprise=1), FaultKind.SCHEMA, "surprise"),
        (_changed(weights={"batch": -0.5}), FaultKind.SCHEMA, "weights.batch"),
        (_changed(weights={"batch": float("nan")}), FaultKind.SCHEMA, "weights.batch"),
        (_changed(weights={"batch": float("inf")}), FaultKind.SCHEMA, "weights.batch"),
        (_changed(weights={"batch": "6"}), FaultKind.SCHEMA, "weights.batch"),
        (_signed(weights={"other": 6.0}), FaultKind.MEANING, "weights.other: there is no such"),
        (
            _signed(weights={"realtime": 0.0, "standard": 0.0, "batch": 0.0}),
            FaultKind.MEANING,
            "all are 0",
        ),
        (_changed(tenants=[{"name": "\ud800"}]), FaultKind.SCHEMA, "JSON"),
        (_changed(hash="0" * 64), FaultKind.HASH, "does not fit its hash"),
        (_changed(share=0.5), FaultKind.HASH, "does not fit its hash"),
        (gzip.compress(b"{}")[:-9], FaultKind.UNREADABLE, "cut"),
        (b"\x1f\x8bnonsense", FaultKind.UNREADABLE, "not JSON"),
        (gzip.compress(b" " * (LARGEST_DOCUMENT_BYTES + 1)), FaultKind.UNREADABLE, "larger"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_document_that_cannot_be_used_is_refused_with_the_reason(
    data: bytes, kind: FaultKind, says: str
) -> None:
    """D07: whatever is wrong, it is one error that says what."""
    with pytest.raises(DocumentError, match=says) as caught:
        parse_document(data)
    assert caught.value.kind is kind


def test_a_packed_document_is_read_like_a_plain_one() -> None:
    """A ConfigMap holds 1 MiB; large ones are packed."""
    packed = gzip.compress(document_json(default_document()).encode())
    assert parse_document(packed) == default_document()


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_document_or_a_document_error(data: bytes) -> None:
    """D07: nothing else is ever raised."""
    for each in (data, b"\x1f\x8b" + data, gzip.compress(data)):
        with pytest.raises(DocumentError):
            parse_document(each)


@given(position=st.integers(min_value=0), byte=st.integers(min_value=0, max_value=255))
def test_a_document_altered_on_its_way_is_never_taken_for_another(position: int, byte: int) -> None:
    """D03: it says what it said, or it is refused; its number is not what the hash is for."""
    original = default_document()
    data = bytearray(document_json(original).encode())
    data[position % len(data)] = byte
    try:
        found = parse_document(bytes(data))
    except DocumentError:
        return
    assert renumber(found, epoch=0, generation=0) == original


def test_a_document_cut_anywhere_is_refused() -> None:
    """D03: no half of a document is ever in force."""
    data = document_json(default_document()).encode().rstrip()
    for length in range(0, len(data), 7):
        with pytest.raises(DocumentError):
            parse_document(data[:length])


@pytest.mark.slow
@given(policy=policies(), first=tenants("acme"), second=tenants("zeta"))
def test_what_is_compiled_survives_its_way_to_the_proxy(
    policy: dict[str, object], first: dict[str, object], second: dict[str, object]
) -> None:
    """Resource to document to JSON to document: nothing changes, and nothing is lost."""
    origin = Origin(file="x")
    tenant_candidates = [
        Candidate(
            resource=valid_tenant(value),
            key=ResourceKey("TenantPriority", "", name),
            origin=origin,
            key_digests=(digest_key(name.encode()),),
        )
        for name, value in (("acme", first), ("zeta", second))
    ]
    candidate = Candidate(
        resource=valid_policy(policy), key=ResourceKey("SLOPolicy", "", "chat"), origin=origin
    )
    compilation = compile_policies([candidate], tenant_candidates, share=0.25)
    assert compilation.faults == ()
    (document,) = compilation.documents
    assert document.spec == candidate.resource.spec
    assert [each.name for each in document.tenants] == ["acme", "zeta"]
    text = document_json(document)
    again = parse_document(text.encode())
    assert again == document
    assert document_json(again) == text


def test_the_built_in_document_is_older_than_any_other() -> None:
    """Fail static: the default gives way to whatever the operator writes."""
    assert default_document().order == (0, 0)
    assert parse_document(document_json(default_document()).encode()) == default_document()
