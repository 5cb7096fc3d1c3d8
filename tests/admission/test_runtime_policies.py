"""What becomes of one request under the policy in force?"""

import json

import pytest
from giveway_admission.endpoints import ENDPOINTS
from giveway_admission.outcomes import Outcome
from giveway_admission.request_reading import InvalidRequestError, read_request
from giveway_admission.runtime_policies import Admission, Refusal, RuntimePolicy
from giveway_policy.defaults import default_document
from giveway_scheduler import Request, RequestKey
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.policy_documents import document, tenant
from tests.support.json_texts import objects

CHAT = ENDPOINTS["/v1/chat/completions"]
KEY = b"sk-acme-0123456789"
EVERYTHING = ("X-Giveway-Tenant", "X-Giveway-Class", "X-Giveway-Source")

POLICY = RuntimePolicy.build(
    document(
        tenants=(
            tenant("acme", maximum_class="standard", keys=(KEY,)),
            tenant("vip", maximum_class="realtime", keys=(b"sk-vip-0123456789",)),
        ),
        trusted_headers=EVERYTHING[1:],
    )
)


def _admit(
    headers: dict[bytes, bytes],
    body: bytes = b"{}",
    *,
    policy: RuntimePolicy = POLICY,
) -> Admission | Refusal:
    facts = read_request(CHAT, body, complete=True, content_length=len(body))
    standing = policy.stand(headers)
    if isinstance(standing, Refusal):
        return standing
    return policy.admit(standing, facts, key=RequestKey(7), name="req-1", size_bytes=len(body))


def _request(headers: dict[bytes, bytes], body: bytes = b"{}") -> Request:
    admission = _admit(headers, body)
    assert isinstance(admission, Admission)
    return admission.request


def test_a_request_is_made_ready_for_the_scheduler() -> None:
    """Everything the scheduler asks for, from headers and body."""
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": "x" * 4000}],
            "max_tokens": 50,
            "n": 2,
            "stream": True,
        }
    ).encode()
    admission = _admit(
        {
            b"x-api-key": KEY,
            b"x-giveway-class": b"batch",
            b"x-giveway-workflow": b"flow-1",
            b"x-giveway-waits-for": b"req-0",
            b"x-giveway-timeout-ms": b"2500",
        },
        body,
    )
    assert isinstance(admission, Admission)
    assert (admission.class_name, admission.tenant) == ("batch", "acme")
    assert not admission.asked_class_unknown
    request = admission.request
    assert request.key == 7
    assert request.rank == 2
    assert request.tenant == "acme"
    assert 1000 <= request.prompt_tokens <= 1020
    assert request.maximum_output_tokens == 100
    assert request.answers == 2
    assert request.size_bytes == len(body)
    assert request.patience_s == 2.5
    assert (request.name, request.workflow, request.waits_for) == ("req-1", "flow-1", "req-0")
    assert request.ceiling_rank == 1
    assert request.shows_first_token


def test_an_unknown_key_is_refused_as_unauthorized() -> None:
    """Only where the policy says so."""
    policy = RuntimePolicy.build(document(unknown_credential="Reject"))
    refusal = _admit({b"x-api-key": KEY}, policy=policy)
    assert isinstance(refusal, Refusal)
    assert refusal.outcome is Outcome.UNAUTHORIZED
    assert KEY.decode() not in refusal.message
    assert isinstance(_admit({b"x-api-key": KEY}), Admission)


@pytest.mark.parametrize(
    ("value", "patience_s"),
    [
        (b"1", 0.001),
        (b"999999999", 999_999.999),
        (b"0", None),
        (b"-5", None),
        (b"1.5", None),
        (b"", None),
        (b"9" * 400, None),
        (b"10, 20", None),
        ("\N{ARABIC-INDIC DIGIT ONE}".encode(), None),
    ],
)
def test_patience_is_whole_milliseconds(value: bytes, patience_s: float | None) -> None:
    """Anything else is no wish (C11)."""
    assert _request({b"x-giveway-timeout-ms": value}).patience_s == patience_s


@pytest.mark.parametrize("value", [b"x" * 129, b"a b", b'"', b"a\r\nX: y", b"", b"a, b"])
def test_ids_that_could_do_harm_are_dropped(value: bytes) -> None:
    """Workflow and waited-for request: bounded and clean, or none (G10)."""
    request = _request({b"x-giveway-workflow": value, b"x-giveway-waits-for": value})
    assert request.workflow is None
    assert request.waits_for is None


def test_the_built_in_policy_classifies_by_source() -> None:
    """Sources of H1; what is unknown is batch."""
    policy = RuntimePolicy.build(default_document())
    for source, expected in (
        (b"realtime-chat", "realtime"),
        (b"code-completion", "realtime"),
        (b"translation", "standard"),
        (b"embedding", "batch"),
        (b"unheard-of", "batch"),
    ):
        admission = _admit({b"x-giveway-source": source}, policy=policy)
        assert isinstance(admission, Admission)
        assert admission.class_name == expected
    assert policy.class_names == ("realtime", "standard", "batch")


_HEADERS = st.dictionaries(
    st.sampled_from(
        [
            *(b"x-giveway-class", b"x-giveway-source", b"x-giveway-tenant", b"x-vllm-priority"),
            *(b"x-forwarded-for", b"x-tenant", b"authorization", b"x-giveway-workflow"),
        ]
    ),
    st.one_of(
        st.binary(max_size=30),
        st.sampled_from(
            [b"realtime", b"vip", b"batch, realtime", b"chat", b"Bearer x", b"Bearer vip"]
        ),
    ),
)


@given(_HEADERS, objects(), st.sampled_from([None, "priority", "flex", "auto"]))
def test_no_header_and_no_body_raises_class_or_changes_tenant(
    headers: dict[bytes, bytes], body: bytes, tier: str | None
) -> None:
    """acme's key makes it acme, at most standard, whatever else is sent and how often (G01)."""
    if tier is not None:
        at = body.index(b"{") + 1
        comma = b"" if body[at:].strip() == b"}" else b","
        body = b'%s"service_tier":"%s"%s%s' % (body[:at], tier.encode(), comma, body[at:])
    try:
        admission = _admit({**headers, b"x-api-key": KEY}, body)
    except InvalidRequestError:
        return
    assert isinstance(admission, Admission)
    assert admission.tenant == "acme"
    assert admission.request.rank >= 1
    assert admission.request.ceiling_rank == 1
