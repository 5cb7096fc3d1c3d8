"""Whose request is it, and can anybody pretend?"""

import hashlib

import pytest
from giveway_admission.identifying import Identifier, credentials

from tests.admission.policy_documents import document, tenant

KEY = b"sk-acme-0123456789"
OTHER_KEY = b"sk-globex-0123456789"


def _identifier(*, trusted: tuple[str, ...] = (), unknown: str = "Fallback") -> Identifier:
    return Identifier.build(
        document(
            tenants=(
                tenant("acme", keys=(KEY,), headers=(("x-tenant", "acme"), ("x-org", "a"))),
                tenant("globex", keys=(OTHER_KEY,), headers=(("x-tenant", "globex"),)),
            ),
            trusted_headers=trusted,
            unknown_credential=unknown,
        )
    )


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({b"authorization": b"Bearer " + KEY}, "acme"),
        ({b"authorization": b"bearer  " + KEY}, "acme"),
        ({b"x-api-key": KEY}, "acme"),
        ({b"authorization": b"Bearer " + OTHER_KEY, b"x-api-key": KEY}, "globex"),
        ({b"authorization": b"Bearer unknown", b"x-api-key": KEY}, "acme"),
        ({b"authorization": KEY}, "anonymous"),
        ({b"authorization": b"Basic " + KEY}, "anonymous"),
        ({b"authorization": b"Bearer " + KEY + b", Bearer x"}, "anonymous"),
        ({b"authorization": b"Bearer " + hashlib.sha256(KEY).digest()}, "anonymous"),
        ({b"x-tenant": b"globex"}, "globex"),
        ({b"x-org": b"a"}, "acme"),
        ({b"x-tenant": b"acme, globex"}, "anonymous"),
        ({b"x-tenant": b"ACME"}, "anonymous"),
        ({b"x-api-key": KEY, b"x-tenant": b"globex"}, "acme"),
        ({b"x-api-key": b"unknown", b"x-tenant": b"globex"}, "globex"),
        ({b"x-giveway-tenant": b"globex"}, "anonymous"),
        ({b"x-forwarded-for": b"acme"}, "anonymous"),
        ({}, "anonymous"),
    ],
)
def test_the_tenant_is_found_by_what_is_trusted(headers: dict[bytes, bytes], expected: str) -> None:
    """Credential, then a named header, then the fallback; nothing else (G01, G12)."""
    assert _identifier().find(headers) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"globex", "globex"),
        (b"somebody.else@x", "somebody.else@x"),
        (b"x" * 128, "x" * 128),
        (b"x" * 129, "anonymous"),
        (b"x" * 6000, "anonymous"),
        (b"", "anonymous"),
        (b"a, b", "anonymous"),
        (b'a"b', "anonymous"),
        (b"a\x00b", "anonymous"),
        (b"a\r\nb", "anonymous"),
        (b"a%0d%0ab", "anonymous"),
        (b"../x", "anonymous"),
        ("ä".encode(), "anonymous"),
        ("🙂".encode(), "anonymous"),
    ],
)
def test_a_trusted_tenant_header_names_only_what_can_be_a_name(value: bytes, expected: str) -> None:
    """Names from outside are bounded and harmless in logs, headers and labels (G10)."""
    identifier = _identifier(trusted=("X-Giveway-Tenant",))
    assert identifier.find({b"x-giveway-tenant": value}) == expected


def test_a_credential_goes_before_a_trusted_header() -> None:
    """The same key with 500 tenant headers has one budget (G01)."""
    identifier = _identifier(trusted=("X-Giveway-Tenant",))
    found = {
        identifier.find({b"x-api-key": KEY, b"x-giveway-tenant": b"t%d" % number})
        for number in range(500)
    }
    assert found == {"acme"}


def test_an_unknown_key_is_refused_if_the_policy_says_so() -> None:
    """401, also where a header would name a tenant; no key at all is no unknown key."""
    identifier = _identifier(unknown="Reject", trusted=("X-Giveway-Tenant",))
    assert identifier.find({b"x-api-key": b"unknown", b"x-tenant": b"acme"}) is None
    assert identifier.find({b"authorization": b"Bearer nobody"}) is None
    assert identifier.find({b"authorization": b"Bearer nobody", b"x-api-key": KEY}) == "acme"
    assert identifier.find({b"authorization": b"Bearer "}) == "anonymous"
    assert identifier.find({}) == "anonymous"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, []),
        ({b"authorization": b"Bearer a", b"x-api-key": b" b "}, [b"a", b"b"]),
        ({b"authorization": b"Bearer", b"x-api-key": b""}, []),
        ({b"authorization": b"BEARER \t a "}, [b"a"]),
        ({b"x-api-key": b"  "}, []),
    ],
)
def test_credentials_are_found(headers: dict[bytes, bytes], expected: list[bytes]) -> None:
    """Bearer first, then X-Api-Key; nothing is nothing."""
    assert credentials(headers) == expected
