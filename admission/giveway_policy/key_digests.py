"""How do digests of API keys reach a proxy, if not in the policy document?

In the cluster the document is in a ConfigMap, which many may read, and digests are in a Secret: one
JSON object, by tenant, gzip or not. The proxy puts the two together. The document keeps its hash,
which says what was published, not what else is known.
"""

import json
import re
import zlib
from collections.abc import Mapping

from giveway_policy.documents import PolicyDocument

LARGEST_DIGESTS_BYTES = 32 * 2**20
_DIGEST = re.compile(r"[0-9a-f]{64}")


def without_digests(document: PolicyDocument) -> PolicyDocument:
    """The same, with no digest in it. Its hash is then another one."""
    tenants = tuple(each.model_copy(update={"key_digests": ()}) for each in document.tenants)
    return document.model_copy(update={"tenants": tenants})


def with_digests(
    document: PolicyDocument, digests: Mapping[str, tuple[str, ...]]
) -> PolicyDocument:
    """The same, with these digests for its tenants and no others, under the same hash.

    A key that two tenants have is nobody's: whoever wrote this cannot have meant it.
    """
    owners: dict[str, set[str]] = {}
    for tenant in document.tenants:
        for digest in digests.get(tenant.name, ()):
            owners.setdefault(digest, set()).add(tenant.name)
    found: dict[str, list[str]] = {}
    for digest, names in sorted(owners.items()):
        if len(names) == 1:
            found.setdefault(names.pop(), []).append(digest)
    tenants = tuple(
        each.model_copy(update={"key_digests": tuple(found.get(each.name, ()))})
        for each in document.tenants
    )
    return document.model_copy(update={"tenants": tenants})


def digests_of(document: PolicyDocument) -> dict[str, tuple[str, ...]]:
    """Those that are in it, by tenant."""
    return {each.name: each.key_digests for each in document.tenants if each.key_digests}


def parse_digests(data: bytes) -> dict[str, tuple[str, ...]]:
    """Digests by tenant. Raises `ValueError` with what is wrong, and nothing else."""
    try:
        if data[:2] == b"\x1f\x8b":
            data = _unpacked(data)
        raw = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError, zlib.error) as error:
        raise ValueError(f"it is not JSON: {str(error)[:200]}") from None
    if not isinstance(raw, dict):
        raise ValueError("it is JSON, but not an object")  # noqa: TRY004 - of a file's content
    for tenant, digests in raw.items():
        if not isinstance(digests, list) or not all(
            isinstance(each, str) and _DIGEST.fullmatch(each) for each in digests
        ):
            raise ValueError(f"what it says of the tenant {tenant[:80]} are no SHA-256 digests")
    return {tenant: tuple(each) for tenant, each in raw.items()}


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    unpacked = unpacker.decompress(data, LARGEST_DIGESTS_BYTES)
    if not unpacker.eof:
        raise ValueError("it is gzip, but cut, or far too large")
    return unpacked
