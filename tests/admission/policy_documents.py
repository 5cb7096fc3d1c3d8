"""Which policy document does a test want?

Documents as the compiler makes them, with three classes and whatever tenants are given.
"""

import hashlib

from giveway_policy.documents import PolicyDocument, PolicyName, Tenant, make_document
from giveway_policy.enumerations import Kind, TrustedHeader, UnknownCredential
from giveway_policy.limits import TenantLimits
from giveway_policy.resources import Identity, ServiceClass, SLOPolicySpec, SourceClass

CLASSES = ("realtime", "standard", "batch")

POLICY_SOURCES = (("chat", "realtime"), ("translation", "standard"), ("evaluation", "batch"))


def document(
    *,
    tenants: tuple[Tenant, ...] = (),
    trusted_headers: tuple[str, ...] = (),
    unknown_credential: str = "Fallback",
    fallback_class: str = "standard",
    fallback_default_class: str = "batch",
    batch: bool = True,
    share: float = 1.0,
    spec: SLOPolicySpec | None = None,
) -> PolicyDocument:
    """`batch` false: all classes are Interactive."""
    if spec is None:
        spec = SLOPolicySpec(
            classes=(
                ServiceClass(name="realtime", kind=Kind.INTERACTIVE, weight=70),
                ServiceClass(name="standard", kind=Kind.INTERACTIVE, weight=25),
                ServiceClass(
                    name="batch", kind=Kind.BATCH if batch else Kind.INTERACTIVE, weight=5
                ),
            ),
            sources=_sources(POLICY_SOURCES),
            identity=Identity(
                trusted_headers=tuple(TrustedHeader(name) for name in trusted_headers),
                fallback_class=fallback_class,
                fallback_default_class=fallback_default_class,
                unknown_credential=UnknownCredential(unknown_credential),
            ),
        )
    return make_document(PolicyName(name="test"), spec, tenants=tenants, share=share)


def tenant(
    name: str,
    *,
    maximum_class: str = "realtime",
    default_class: str = "",
    keys: tuple[bytes, ...] = (),
    headers: tuple[tuple[str, str], ...] = (),
    sources: tuple[tuple[str, str], ...] = (),
    weight: int = 1,
    limits: TenantLimits | None = None,
) -> Tenant:
    """A tenant; `default_class` "": its maximum."""
    return Tenant(
        name=name,
        maximum_class=maximum_class,
        default_class=default_class or maximum_class,
        sources=_sources(sources),
        weight=weight,
        limits=limits or TenantLimits(),
        key_digests=tuple(hashlib.sha256(key).hexdigest() for key in keys),
        headers=headers,
    )


def _sources(pairs: tuple[tuple[str, str], ...]) -> tuple[SourceClass, ...]:
    return tuple(SourceClass(source=source, class_name=name) for source, name in pairs)
