"""What does the API server itself refuse?

Rules of one object in CEL, by the path of the field that they are about; `[]` is each item of a
list. They say what `giveway_policy.checks` and `giveway_policy.tenant_checks` say of one object, so
that `kubectl apply` tells an author at once what the operator would only report. Left to the checks
is what stands twice in a list (sources, objectives, trusted headers, ageing classes), and a
fallbackDefaultClass above fallbackClass: comparing all pairs costs more than a rule may. A field
without a default in the schema may be absent: a rule that reads it asks `has` first.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: `rule` has to be true, `message` says what is wrong and what to do."""

    rule: str
    message: str


def _burst(burst: str, rates: tuple[str, ...]) -> Rule:
    given = " || ".join(f"(has(self.{rate}) && self.{rate} > 0)" for rate in rates)
    return Rule(
        rule=f"!has(self.{burst}) || {given}",
        message=f"{burst} means nothing without a limit above 0: set {' or '.join(rates)}, "
        f"or remove {burst}",
    )


_LIMITS = (
    Rule(
        rule="!(has(self.requestsPerSecond) && has(self.requestsPerMinute))",
        message="requestsPerSecond and requestsPerMinute limit the same: keep one of them",
    ),
    _burst("requestBurst", ("requestsPerSecond", "requestsPerMinute")),
    _burst("tokenBurst", ("tokensPerMinute",)),
)

_LARGEST_THRESHOLD_MS = {
    "TimeToFirstToken": 3_600_000,
    "InterTokenLatency": 60_000,
}

POLICY: Mapping[str, tuple[Rule, ...]] = {
    "spec": (
        Rule(
            rule="self.classes.exists(c, c.weight > 0)",
            message="all weights are 0, so nobody has a share: give a class a weight above 0",
        ),
        Rule(
            rule="!has(self.sources) || "
            "self.sources.all(s, self.classes.exists(c, c.name == s.class))",
            message="sources name a class that is not there: use one of spec.classes",
        ),
        Rule(
            rule="size(self.classes) < 2 || !has(self.concurrency) || "
            "!has(self.concurrency.reservedSeats) || "
            "self.concurrency.reservedSeats < self.concurrency.seats",
            message="all seats are reserved, so no class but the first ever runs: "
            "set reservedSeats below seats",
        ),
        Rule(
            rule="!has(self.scheduling) || self.scheduling.algorithm != 'InteractiveFirst' || "
            "self.classes.exists(c, c.kind == 'Interactive')",
            message="InteractiveFirst needs a class of kind Interactive: give a class this kind, "
            "or take another algorithm",
        ),
        Rule(
            rule="!has(self.scheduling) || self.scheduling.algorithm != 'InteractiveFirst' || "
            "!self.classes.exists(c, c.kind == 'Batch') || !has(self.concurrency) || "
            "!has(self.concurrency.batch) || !has(self.concurrency.batch.maximum) || "
            "self.concurrency.batch.maximum < self.concurrency.seats",
            message="batch may take all seats, so none is left for interactive requests: "
            "set concurrency.batch.maximum below seats",
        ),
        Rule(
            rule="!has(self.scheduling) || !has(self.scheduling.dynamicAging) || "
            "self.scheduling.dynamicAging.classes.all("
            "a, self.classes.exists(c, c.name == a.class))",
            message="dynamicAging names a class that is not there: use one of spec.classes",
        ),
        Rule(
            rule="!has(self.identity) || !has(self.identity.fallbackClass) || "
            "self.classes.exists(c, c.name == self.identity.fallbackClass)",
            message="identity.fallbackClass is not there: use one of spec.classes",
        ),
        Rule(
            rule="!has(self.identity) || !has(self.identity.fallbackDefaultClass) || "
            "self.classes.exists(c, c.name == self.identity.fallbackDefaultClass)",
            message="identity.fallbackDefaultClass is not there: use one of spec.classes",
        ),
    ),
    "spec.classes[]": (
        Rule(
            rule="self.name != 'none'",
            message="none is what metrics say for requests without a class: take another name",
        ),
    ),
    "spec.classes[].limits": _LIMITS,
    "spec.classes[].objectives[]": (
        Rule(
            rule="(self.indicator == 'ErrorRate') != has(self.thresholdMilliseconds)",
            message="every indicator but ErrorRate needs thresholdMilliseconds, and ErrorRate has "
            "none",
        ),
        *(
            Rule(
                rule=f"self.indicator != '{indicator}' || !has(self.thresholdMilliseconds) || "
                f"self.thresholdMilliseconds <= {largest}",
                message=f"that is too long for {indicator}: write milliseconds, at most {largest}",
            )
            for indicator, largest in _LARGEST_THRESHOLD_MS.items()
        ),
        Rule(
            rule="double(self.targetPercent) > 0.0 && double(self.targetPercent) < 100.0",
            message="a target of 0 asks for nothing, one of 100 is missed for ever by a single "
            "slow request: write one between, like 99.9",
        ),
    ),
    "spec.concurrency": (
        Rule(
            rule="!has(self.batch) || !has(self.batch.maximum) || self.batch.maximum <= self.seats",
            message="batch.maximum is above the seats that there are: set it to at most seats",
        ),
    ),
    "spec.concurrency.batch": (
        Rule(
            rule="self.minimum >= 1",
            message="a minimum of 0 starves batch under steady interactive load: "
            "set it to at least 1",
        ),
        Rule(
            rule="!has(self.maximum) || self.minimum <= self.maximum",
            message="minimum is above maximum: set it to at most maximum",
        ),
    ),
    "spec.scheduling.interactiveFirst": (
        Rule(
            rule="double(self.smoothing) > 0.0",
            message="with a smoothing of 0 the pressure never moves: write one above 0, like 0.3",
        ),
    ),
    "spec.scheduling.sloAware": (
        Rule(
            rule="double(self.batchTokenFloorPercent) < 100.0",
            message="a floor of 100 leaves nothing to interactive requests: write a small share",
        ),
    ),
    "spec.identity": (
        Rule(
            rule="!has(self.jwt)",
            message="JSON Web Tokens are not yet supported: use API keys, or a header that your "
            "gateway sets after verifying",
        ),
        Rule(
            rule="!has(self.fallbackTenant) || self.fallbackTenant != 'other'",
            message="other is what metrics say for many tenants together: take another name",
        ),
    ),
    "spec.adjustment": (
        Rule(
            rule="self.windowSeconds >= self.intervalSeconds",
            message="the window is shorter than the interval, so some requests are never looked "
            "at: set it to at least intervalSeconds",
        ),
        Rule(
            rule="double(self.maximumStepPercent) > 0.0",
            message="with a step of 0 no weight ever moves: write one above 0, like 20",
        ),
    ),
    "spec.accounting": (
        Rule(
            rule="self.firstOutputEstimateTokens <= self.largestOutputEstimateTokens",
            message="the first estimate is above the largest: "
            "set it to at most largestOutputEstimateTokens",
        ),
        Rule(
            rule="double(self.outputTokenWeight) > 0.0",
            message="with a weight of 0 generated tokens are free: write one above 0, like 2",
        ),
    ),
}
"""Of an SLOPolicy."""

TENANT: Mapping[str, tuple[Rule, ...]] = {
    "spec": (
        Rule(
            rule="self.tenant == oldSelf.tenant",
            message="the tenant cannot be changed: make another TenantPriority",
        ),
        Rule(
            rule="self.tenant != 'other'",
            message="other is what metrics say for many tenants together: take another name",
        ),
    ),
    "spec.limits": _LIMITS,
    "spec.recognizedBy[]": (
        Rule(
            rule="[has(self.apiKey), has(self.header), has(self.jwtClaim)]"
            ".filter(way, way).size() == 1",
            message="each entry names exactly one way: write further ways as further entries",
        ),
        Rule(
            rule="!has(self.jwtClaim)",
            message="JSON Web Tokens are not yet supported: use apiKey, or a header that your "
            "gateway sets after verifying the token",
        ),
    ),
    "spec.recognizedBy[].apiKey": (
        Rule(
            rule="has(self.secretRef) != has(self.keyFile)",
            message="the keys are in exactly one place: write either secretRef or keyFile",
        ),
    ),
    "spec.recognizedBy[].header": (
        Rule(
            rule="!(self.name.lowerAscii() in ['authorization', 'x-api-key'])",
            message="this header carries the API key, which does not belong into a policy: "
            "use apiKey",
        ),
        Rule(
            rule="!self.name.lowerAscii().startsWith('x-giveway-')",
            message="this is a header of giveway's own: trust X-Giveway-Tenant in the policy's "
            "identity.trustedHeaders instead",
        ),
    ),
}
"""Of a TenantPriority."""
