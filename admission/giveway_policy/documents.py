"""What does a proxy get to know?

The policy document is one policy and all tenants, complete, in canonical JSON. Whoever compiles
writes it, proxies read it, and both may be of different versions: `format` says which rules hold.

- The hash covers what a proxy acts on, not the epoch and generation: equal content has an equal
  hash, and a document that was cut or altered on its way does not fit its own.
- (epoch, generation) orders documents of one policy. The higher one wins.
- No API key is in a document, only SHA-256 digests of keys.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, ValidationError

from giveway_policy.faults import FaultKind
from giveway_policy.fields import ClassName, Model, ResourceName, TenantName
from giveway_policy.limits import TenantLimits
from giveway_policy.resources import SLOPolicySpec, SourceClass

FORMAT: Final = 1
LARGEST_DOCUMENT_BYTES = 32 * 2**20
_NOT_HASHED = frozenset({"hash", "epoch", "generation"})

ClassWeight = Annotated[float, Field(ge=0, le=1_000_000_000, allow_inf_nan=False)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class PolicyName(Model):
    namespace: str = Field(default="", max_length=253, description="Empty without Kubernetes.")
    name: ResourceName = Field(description="Name of the SLOPolicy.")

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Tenant(Model):
    """One tenant as a proxy knows it."""

    name: TenantName = Field(description="Name in metrics, logs and answers.")
    maximum_class: ClassName = Field(description="Its ceiling.")
    default_class: ClassName = Field(description="Class when neither request nor source decides.")
    sources: tuple[SourceClass, ...] = Field(default=(), description="Its own source map.")
    weight: int = Field(default=1, ge=1, description="Share inside a class.")
    limits: TenantLimits = Field(default_factory=TenantLimits, description="What it may use.")
    key_digests: tuple[Digest, ...] = Field(
        default=(), description="SHA-256 of each of its API keys, lower-case hex."
    )
    headers: tuple[tuple[str, str], ...] = Field(
        default=(), description="Headers it is known by: lower-case name, value."
    )
    jwt_claims: tuple[tuple[str, str], ...] = Field(
        default=(), description="Claims it is known by: name, value."
    )


class PolicyDocument(Model):
    """One policy and its tenants. Make one with `make_document`, so that the hash fits."""

    format: Literal[1] = Field(default=FORMAT, description="Version of these rules.")
    policy: PolicyName = Field(description="Where it comes from.")
    epoch: int = Field(ge=0, description="Which life of the compiler wrote it.")
    generation: int = Field(ge=0, description="Which document of that life it is.")
    hash: Digest = Field(description="SHA-256 of the canonical content.")
    share: float = Field(
        default=1.0, gt=0, le=1, description="This proxy's part of the limits of the fleet."
    )
    spec: SLOPolicySpec = Field(description="The policy, complete.")
    tenants: tuple[Tenant, ...] = Field(default=(), description="All tenants, by name.")
    weights: dict[ClassName, ClassWeight] = Field(
        default_factory=dict,
        max_length=16,
        description="Weights that the operator decided. A class that is not named has the spec's.",
    )

    @property
    def class_weights(self) -> dict[str, float]:
        """The weight of each class that is in force, in the order of the classes."""
        return {
            each.name: self.weights.get(each.name, float(each.weight)) for each in self.spec.classes
        }

    @property
    def order(self) -> tuple[int, int]:
        """Of two documents of one policy the one with the higher order is the newer."""
        return (self.epoch, self.generation)


class DocumentError(ValueError):
    """The document cannot be used. For the operator, or whoever put it there."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def make_document(
    policy: PolicyName,
    spec: SLOPolicySpec,
    *,
    tenants: tuple[Tenant, ...] = (),
    epoch: int = 0,
    generation: int = 1,
    share: float = 1.0,
    weights: Mapping[str, float] | None = None,
) -> PolicyDocument:
    """The document of this content, with its hash.

    `weights` None: the spec's. Raises `DocumentError` for weights that do not fit the classes.
    """
    unsigned = PolicyDocument(
        policy=policy,
        epoch=epoch,
        generation=generation,
        hash="0" * 64,
        share=share,
        spec=spec,
        tenants=tuple(sorted(tenants, key=lambda each: each.name)),
        weights=dict(weights or {}),
    )
    _check_weights(unsigned)
    return unsigned.model_copy(update={"hash": content_hash(unsigned)})


def renumber(document: PolicyDocument, *, epoch: int, generation: int) -> PolicyDocument:
    """The same content under another number. The hash does not cover it."""
    return document.model_copy(update={"epoch": epoch, "generation": generation})


def content_hash(document: PolicyDocument) -> str:
    """The hash that belongs into a document of this content."""
    return _hash_of(_plain(document))


def document_json(document: PolicyDocument) -> str:
    """Canonical JSON: sorted keys, no spaces, nothing that is absent. Ends with a newline."""
    return _canonical(_plain(document)) + "\n"


def parse_document(data: bytes) -> PolicyDocument:
    """Read what `document_json` wrote, gzip or not. Raises `DocumentError`, and nothing else."""
    raw = _load(data)
    found = raw.get("format")
    if found is None:
        raise DocumentError(FaultKind.FORMAT, "it has no format: not a policy document")
    if found != FORMAT or isinstance(found, bool):
        raise DocumentError(
            FaultKind.FORMAT,
            f"its format is {str(found)[:20]}, this giveway reads format {FORMAT}: "
            "bring operator and proxy to the same version",
        )
    try:
        document = PolicyDocument.model_validate_json(json.dumps(raw), by_alias=True, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:200]
        raise DocumentError(FaultKind.SCHEMA, f"{where}: {first['msg'][:300]}") from None
    if _hash_of(raw) != document.hash:
        raise DocumentError(FaultKind.HASH, "its content does not fit its hash")
    _check_weights(document)
    return document


def _check_weights(document: PolicyDocument) -> None:
    weights = document.class_weights
    unknown = sorted(set(document.weights) - set(weights))
    if unknown:
        raise DocumentError(
            FaultKind.MEANING, f"weights.{unknown[0]}: there is no such class in the policy"
        )
    if document.weights and not any(weights.values()):
        raise DocumentError(FaultKind.MEANING, "weights: all are 0, so nobody has a share")


def _hash_of(written: dict[str, object]) -> str:
    """Of what is written and nothing else: a field that the writer did not know yet is filled in
    by the reader, and does not make the document another one."""
    content = {key: each for key, each in written.items() if key not in _NOT_HASHED}
    return hashlib.sha256(_canonical(content).encode()).hexdigest()


def _load(data: bytes) -> dict[str, object]:
    try:
        raw = json.loads(_unpacked(data).decode("utf-8"))
    except (ValueError, RecursionError, zlib.error) as error:
        reason = str(error)[:200] or type(error).__name__
        raise DocumentError(FaultKind.UNREADABLE, f"it is not JSON: {reason}") from None
    if not isinstance(raw, dict):
        raise DocumentError(FaultKind.UNREADABLE, "it is JSON, but not an object")
    return raw


def _unpacked(data: bytes) -> bytes:
    if data[:2] == b"\x1f\x8b":
        unpacker = zlib.decompressobj(wbits=31)
        data = unpacker.decompress(data, LARGEST_DOCUMENT_BYTES + 1)
        if not unpacker.eof and len(data) <= LARGEST_DOCUMENT_BYTES:
            raise DocumentError(FaultKind.UNREADABLE, "it is gzip, but cut")
    if len(data) > LARGEST_DOCUMENT_BYTES:
        raise too_large()
    return data


def too_large() -> DocumentError:
    size = LARGEST_DOCUMENT_BYTES // 2**20
    return DocumentError(FaultKind.UNREADABLE, f"it is larger than {size} MiB")


def _plain(document: PolicyDocument) -> dict[str, object]:
    """Without weights as documents were before there were any: old ones keep their hash."""
    written = document.model_dump(mode="json", by_alias=True, exclude_none=True)
    if not document.weights:
        del written["weights"]
    return written


def _canonical(content: dict[str, object]) -> str:
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
