"""In which class is a request served?

The class it asks for (a trusted `X-Giveway-Class`, else OpenAI's `service_tier`), else the class
of the source it states (a trusted `X-Giveway-Source`), else its tenant's default. Whatever decides,
the result is never above the tenant's ceiling.

Ranks: 0 is the highest class, so "not above" is `max`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from giveway_policy.documents import PolicyDocument, Tenant
from giveway_policy.enumerations import Kind, TrustedHeader
from giveway_policy.resources import SLOPolicySpec, SourceClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What one tenant's requests can be. Each rank is at or below the ceiling."""

    ceiling: int
    default: int
    sources: Mapping[bytes, int]
    """By the source that a request states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """Finds classes. Prepared once for each policy document."""

    ranks: Mapping[bytes, int]
    """By class name."""
    flexible: int | None
    """The highest class of kind Batch. None: there is none."""
    trusts_class_header: bool
    trusts_source_header: bool
    tenants: Mapping[str, Rules]
    fallback: Rules
    """Of the fallback tenant, and of every tenant that the policy does not name."""

    @classmethod
    def build(cls, document: PolicyDocument) -> "Classifier":
        spec = document.spec
        trusted = spec.identity.trusted_headers
        batch = [rank for rank, each in enumerate(spec.classes) if each.kind is Kind.BATCH]
        fallback = _rules(
            spec,
            maximum_class=spec.identity.fallback_class,
            default_class=spec.identity.fallback_default_class,
        )
        tenants = {tenant.name: _tenant_rules(spec, tenant) for tenant in document.tenants}
        return cls(
            ranks=MappingProxyType(
                {each.name.encode(): rank for rank, each in enumerate(spec.classes)}
            ),
            flexible=batch[0] if batch else None,
            trusts_class_header=TrustedHeader.CLASS in trusted,
            trusts_source_header=TrustedHeader.SOURCE in trusted,
            tenants=MappingProxyType(tenants),
            fallback=fallback,
        )

    def rules(self, tenant: str) -> Rules:
        return self.tenants.get(tenant, self.fallback)

    def find(
        self, rules: Rules, headers: Mapping[bytes, bytes], *, service_tier: str | None
    ) -> tuple[int, bool]:
        """(rank, whether a class was asked for that does not exist)."""
        unknown = False
        if self.trusts_class_header:
            asked = headers.get(b"x-giveway-class")
            if asked is not None:
                rank = self.ranks.get(asked)
                if rank is not None:
                    return max(rank, rules.ceiling), False
                unknown = True
        if service_tier is not None:
            if service_tier == "priority":
                return rules.ceiling, unknown
            if service_tier == "flex" and self.flexible is not None:
                return max(self.flexible, rules.ceiling), unknown
        if self.trusts_source_header:
            source = headers.get(b"x-giveway-source")
            if source is not None:
                return rules.sources.get(source, rules.default), unknown
        return rules.default, unknown


def _tenant_rules(spec: SLOPolicySpec, tenant: Tenant) -> Rules:
    if tenant.name == spec.identity.fallback_tenant:
        # Its classes are the policy's to say; only its sources are its own.
        return _rules(
            spec,
            maximum_class=spec.identity.fallback_class,
            default_class=spec.identity.fallback_default_class,
            sources=tenant.sources,
        )
    return _rules(
        spec,
        maximum_class=tenant.maximum_class,
        default_class=tenant.default_class,
        sources=tenant.sources,
    )


def _rules(
    spec: SLOPolicySpec,
    *,
    maximum_class: str,
    default_class: str,
    sources: tuple[SourceClass, ...] = (),
) -> Rules:
    ceiling = _rank(spec, maximum_class)
    return Rules(
        ceiling=ceiling,
        default=max(ceiling, _rank(spec, default_class)),
        sources=MappingProxyType(
            {
                each.source.encode(): max(ceiling, _rank(spec, each.class_name))
                for each in (*spec.sources, *sources)
            }
        ),
    )


def _rank(spec: SLOPolicySpec, name: str) -> int:
    """A class that the policy does not have counts as the lowest: never more than was meant."""
    rank = spec.class_rank(name)
    return len(spec.classes) - 1 if rank is None else rank
