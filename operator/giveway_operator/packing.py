"""How do documents and digests fit into objects of Kubernetes?

A ConfigMap or Secret holds at most 1 MiB. A text is packed (gzip) before it is large, and what does
not fit is refused by name: what stood there before stays, and nothing is ever cut.
"""

import base64
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from giveway_policy.documents import PolicyDocument, document_json

from giveway_operator.snapshots import DIGESTS_KEY, PublishedObject

LARGEST_OBJECT_BYTES: Final = 2**20
"""Values of one object together, as the API server counts them."""
PACK_FROM_BYTES: Final = 256 * 2**10
_GZIP_LEVEL = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The values of an object, as the API server takes them."""

    data: Mapping[str, str] = field(default_factory=dict)
    binary_data: Mapping[str, str] = field(default_factory=dict)
    """Base64."""

    def are_in(self, published: PublishedObject | None) -> bool:
        if published is None:
            return not self.data and not self.binary_data
        return (self.data, self.binary_data) == (published.data, published.binary_data)


class _Entry(NamedTuple):
    """One value of an object."""

    name: str
    value: str
    is_binary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    contents: Contents
    refused: Mapping[str, str]
    """What did not fit, by name, and why."""


def pack_documents(
    documents: Sequence[PolicyDocument], published: PublishedObject | None
) -> Packed:
    """All documents of a namespace, by name. Of one that does not fit the former one stays.

    A document that is published as it is keeps its bytes: packing it anew could give others, with
    another version of zlib, and be a change that is none.
    """
    before = published or PublishedObject(resource_version="")
    old = _entries(before)
    kept = {each.policy.name for each in documents}
    total = sum(_size(value) for name, value in old.items() if name in kept)
    chosen: dict[str, _Entry] = {}
    refused: dict[str, str] = {}
    for document in sorted(documents, key=lambda each: each.policy.name):
        name = document.policy.name
        entry = _pack(f"{name}.json", document_json(document).encode())
        former = old.get(name)
        if former is not None and _is_same(entry, former):
            entry = former
        larger = total - (_size(former) if former else 0) + _size(entry)
        if larger > LARGEST_OBJECT_BYTES and _size(entry) > (_size(former) if former else 0):
            refused[name] = (
                f"the documents of the namespace would have {larger} bytes, packed, and a "
                f"ConfigMap holds {LARGEST_OBJECT_BYTES}: spread policies over namespaces, or "
                "have fewer tenants with fewer sources"
            )
            if former is not None:
                chosen[name] = former
            continue
        total = larger
        chosen[name] = entry
    return Packed(contents=_contents(chosen.values()), refused=refused)


def pack_digests(digests: Mapping[str, Sequence[str]]) -> Contents | None:
    """The values of the Secret. None: they do not fit."""
    if not digests:
        return Contents()
    text = json.dumps(
        {tenant: sorted(each) for tenant, each in digests.items()},
        sort_keys=True,
        separators=(",", ":"),
    )
    entry = _pack(DIGESTS_KEY, text.encode())
    if _size(entry) > LARGEST_OBJECT_BYTES:
        return None
    # A Secret has one map, and its values are base64 whatever they hold.
    encoded = base64.b64encode(entry.value.encode()).decode("ascii")
    return Contents(data={entry.name: entry.value if entry.is_binary else encoded})


def _pack(name: str, data: bytes) -> _Entry:
    if len(data) < PACK_FROM_BYTES:
        return _Entry(name, data.decode(), is_binary=False)
    packed = gzip.compress(data, _GZIP_LEVEL, mtime=0)
    return _Entry(f"{name}.gz", base64.b64encode(packed).decode("ascii"), is_binary=True)


def _size(entry: _Entry) -> int:
    return (
        len(entry.value) // 4 * 3
        if entry.is_binary
        else len(entry.value.encode("utf-8", "replace"))
    )


def _is_same(entry: _Entry, former: _Entry) -> bool:
    if entry.name != former.name or not entry.is_binary:
        return entry == former
    try:
        return gzip.decompress(base64.b64decode(entry.value)) == gzip.decompress(
            base64.b64decode(former.value)
        )
    except (OSError, EOFError, ValueError):
        return False


def _entries(published: PublishedObject) -> dict[str, _Entry]:
    """By the policy's name."""
    found: dict[str, _Entry] = {}
    for is_binary, values in ((False, published.data), (True, published.binary_data)):
        for name, value in values.items():
            found[name.removesuffix(".gz").removesuffix(".json")] = _Entry(name, value, is_binary)
    return found


def _contents(entries: Iterable[_Entry]) -> Contents:
    data: dict[str, str] = {}
    binary: dict[str, str] = {}
    for name, value, is_binary in entries:
        (binary if is_binary else data)[name] = value
    return Contents(data=data, binary_data=binary)
