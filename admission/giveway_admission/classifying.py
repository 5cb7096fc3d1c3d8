"""In which class is a request served?

The class it asks for (a trusted `X-Giveway-Class`, else OpenAI's `service_tier`), else the class
of the source it states (a trusted `X-Giveway-Source`), else its tenant's default. Whatever decides,
the result is never above the tenant's ceiling.

Ranks: 0 is the highest class, so "not above" is `max`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType

from giveway_policy.documents import PolicyDocument
from giveway_policy.enumerations import Kind, TrustedHeader
from giveway_policy.resources import SourceClass


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
        ranks = {each.name: rank for rank, each in enumerate(spec.classes)}
        make = cache(partial(_rules, ranks, spec.sources))  # most tenants have the same rules
        fallback = spec.identity.fallback_class, spec.identity.fallback_default_class
        tenants: dict[str, Rules] = {}
        for tenant in document.tenants:
            classes = tenant.maximum_class, tenant.default_class
            if tenant.name == spec.identity.fallback_tenant:
                classes = fallback  # they are the policy's to say; only its sources are its own
            tenants[tenant.name] = make(*classes, tenant.sources)
        return cls(
            ranks=MappingProxyType({name.encode(): rank for name, rank in ranks.items()}),
            flexible=batch[0] if batch else None,
            trusts_class_header=TrustedHeader.CLASS in trusted,
            trusts_source_header=TrustedHeader.SOURCE in trusted,
            tenants=MappingProxyType(tenants),
            fallback=make(*fallback, ()),
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


def _rules(
    ranks: Mapping[str, int],
    policy_sources: tuple[SourceClass, ...],
    maximum_class: str,
    default_class: str,
    sources: tuple[SourceClass, ...],
) -> Rules:
    """A class that the policy does not have counts as the lowest: never more than was meant."""
    lowest = len(ranks) - 1
    ceiling = ranks.get(maximum_class, lowest)
    return Rules(
        ceiling=ceiling,
        default=max(ceiling, ranks.get(default_class, lowest)),
        sources=MappingProxyType(
            {
                each.source.encode(): max(ceiling, ranks.get(each.class_name, lowest))
                for each in (*policy_sources, *sources)
            }
        ),
    )
