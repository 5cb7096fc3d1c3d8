"""What holds when nobody wrote a policy?

The published three classes (H1 to H4): limits, burst = one second's requests, weights, objectives,
and which source belongs to which class. Their ages are A1 and A2's. Everybody may have the highest
class, since without a policy nobody is known; what states no source, or one that is unknown, is
batch.
"""

from giveway_policy.documents import PolicyDocument, PolicyName, make_document
from giveway_policy.enumerations import Indicator, Kind, TrustedHeader
from giveway_policy.limits import Limits
from giveway_policy.resources import Identity, Objective, ServiceClass, SLOPolicySpec, SourceClass

DEFAULT_POLICY_NAME = "built-in"

SOURCES_BY_CLASS = {
    "realtime": ("realtime-chat", "code-completion", "search-summary"),
    "standard": ("document-polishing", "translation", "data-analysis"),
    "batch": ("evaluation", "embedding", "offline-inference"),
}
"""H1."""


def default_spec() -> SLOPolicySpec:
    return SLOPolicySpec(
        classes=(
            _interactive("realtime", weight=70, requests_per_s=200, first_token_ms=300),
            _interactive("standard", weight=25, requests_per_s=100, first_token_ms=1000),
            ServiceClass(
                name="batch", kind=Kind.BATCH, weight=5, limits=Limits(requests_per_second=50)
            ),
        ),
        sources=tuple(
            SourceClass(source=source, class_name=class_name)
            for class_name, sources in SOURCES_BY_CLASS.items()
            for source in sources
        ),
        identity=Identity(
            trusted_headers=(TrustedHeader.CLASS, TrustedHeader.SOURCE),
            fallback_class="realtime",
            fallback_default_class="batch",
        ),
    )


def default_document() -> PolicyDocument:
    """Epoch and generation 0, so that every real document is newer."""
    return make_document(
        PolicyName(name=DEFAULT_POLICY_NAME), default_spec(), epoch=0, generation=0
    )


def is_default(document: PolicyDocument) -> bool:
    """Whether nobody wrote it. A person's policy of the same name has a higher number."""
    return str(document.policy) == DEFAULT_POLICY_NAME and document.order == (0, 0)


def _interactive(
    name: str, *, weight: int, requests_per_s: int, first_token_ms: int
) -> ServiceClass:
    return ServiceClass(
        name=name,
        kind=Kind.INTERACTIVE,
        weight=weight,
        limits=Limits(requests_per_second=requests_per_s),
        objectives=(
            Objective(
                indicator=Indicator.TIME_TO_FIRST_TOKEN,
                threshold_milliseconds=first_token_ms,
                target_percent="99",
            ),
        ),
    )
