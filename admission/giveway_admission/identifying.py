"""Whose request is it?

In this order: the tenant that has the presented API key; the tenant that a header's value stands
for (a policy that names the header trusts it); the tenant that a trusted `X-Giveway-Tenant` names;
the fallback tenant. What the policy does not trust is not looked at.

- A key is looked up by its SHA-256 digest: how long a look-up takes says nothing about the key.
- A header that was sent several times arrives joined with commas and so equals no single value. A
  client that adds a value to a gateway's loses the gateway's, and gains nothing.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from giveway_policy.documents import PolicyDocument, Tenant
from giveway_policy.enumerations import TrustedHeader, UnknownCredential
from giveway_policy.fields import LONGEST_TENANT, TENANT_PATTERN

_NAME = re.compile(TENANT_PATTERN.encode())

_BEARER = b"bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class Identifier:
    """Finds tenants. Prepared once for each policy document."""

    keys: Mapping[bytes, str]
    """SHA-256 digest of an API key -> tenant."""
    headers: tuple[tuple[bytes, Mapping[bytes, str]], ...]
    """Lower-case header name -> its value -> tenant."""
    trusts_tenant_header: bool
    fallback: str
    rejects_unknown: bool

    @classmethod
    def build(cls, document: PolicyDocument) -> "Identifier":
        """If two tenants claim the same key or header value, the first in the document has it."""
        keys: dict[bytes, str] = {}
        headers: dict[bytes, dict[bytes, str]] = {}
        for tenant in document.tenants:
            for digest in tenant.key_digests:
                keys.setdefault(bytes.fromhex(digest), tenant.name)
            for name, value in _header_values(tenant):
                headers.setdefault(name, {}).setdefault(value, tenant.name)
        identity = document.spec.identity
        return cls(
            keys=keys,
            headers=tuple(sorted(headers.items())),
            trusts_tenant_header=TrustedHeader.TENANT in identity.trusted_headers,
            fallback=identity.fallback_tenant,
            rejects_unknown=identity.unknown_credential is UnknownCredential.REJECT,
        )

    def find(self, headers: Mapping[bytes, bytes]) -> str | None:
        """The tenant's name. None: it presented a key that nobody has, and that is refused."""
        presented = False
        for key in credentials(headers):
            tenant = self.keys.get(hashlib.sha256(key).digest())
            if tenant is not None:
                return tenant
            presented = True
        if presented and self.rejects_unknown:
            return None
        for name, tenants in self.headers:
            value = headers.get(name)
            if value is not None and value in tenants:
                return tenants[value]
        if self.trusts_tenant_header:
            value = headers.get(b"x-giveway-tenant")
            if value is not None and len(value) <= LONGEST_TENANT and _NAME.fullmatch(value):
                return value.decode("ascii")
        return self.fallback


def credentials(headers: Mapping[bytes, bytes]) -> list[bytes]:
    """The API keys that a request presents, `Authorization: Bearer` first."""
    found = []
    authorization = headers.get(b"authorization")
    if authorization is not None and authorization[:7].lower() == _BEARER:
        found.append(authorization[7:].strip(b" \t"))
    api_key = headers.get(b"x-api-key")
    if api_key is not None:
        found.append(api_key.strip(b" \t"))
    return [key for key in found if key]


def _header_values(tenant: Tenant) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in tenant.headers]
