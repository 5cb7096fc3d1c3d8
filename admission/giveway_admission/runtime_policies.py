"""What does the policy in force make of one request?

Built once for each policy document, with everything looked up and translated beforehand, so that a
request costs a few look-ups. It never changes; a new document makes a new one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from giveway_policy.documents import PolicyDocument
from giveway_scheduler import Request, RequestKey, Settings, TenantName

from giveway_admission.classifying import Classifier, Rules
from giveway_admission.estimates import Estimates
from giveway_admission.identifying import Identifier
from giveway_admission.outcomes import Outcome
from giveway_admission.request_ids import harmless_id
from giveway_admission.request_reading import RequestFacts
from giveway_admission.translating import prompt_estimates, translate

_MILLISECONDS = re.compile(rb"[1-9][0-9]{0,8}")

_UNKNOWN_KEY = "The API key is not known here. Check the key, or ask for one."


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Admission:
    """A request that may be offered to the scheduler. Not frozen: each request makes one."""

    request: Request
    class_name: str
    tenant: str
    asked_class_unknown: bool
    """It asked for a class that does not exist; that counted as not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that ends here."""

    outcome: Outcome
    message: str
    param: str | None = None
    """The field to blame. None: it is none of the body's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimePolicy:
    """A policy document made ready for use."""

    document: PolicyDocument
    settings: Settings
    estimates: Estimates
    class_names: tuple[str, ...]
    """By rank."""
    identifier: Identifier
    classifier: Classifier

    @classmethod
    def build(cls, document: PolicyDocument) -> "RuntimePolicy":
        return cls(
            document=document,
            settings=translate(document),
            estimates=prompt_estimates(document),
            class_names=tuple(each.name for each in document.spec.classes),
            identifier=Identifier.build(document),
            classifier=Classifier.build(document),
        )

    def stand(
        self, headers: Mapping[bytes, bytes], *, tenant: str | None = None
    ) -> "Standing | Refusal":
        """Who it is, and what its headers ask for. The same headers always give the same.

        `headers`: lower-case name -> value; repeated ones joined with ", ". `tenant` None: the
        headers tell.
        """
        if tenant is None:
            tenant = self.identifier.find(headers)
        if tenant is None:
            return Refusal(outcome=Outcome.UNAUTHORIZED, message=_UNKNOWN_KEY)
        rules = self.classifier.rules(tenant)
        rank, unknown = self.classifier.find(rules, headers, service_tier=None)
        return Standing(
            policy=self,
            headers=headers,
            tenant=TenantName(tenant),
            rules=rules,
            rank=rank,
            asked_class_unknown=unknown,
            patience_s=_patience_s(headers.get(b"x-giveway-timeout-ms")),
            workflow=harmless_id(headers.get(b"x-giveway-workflow")),
            waits_for=harmless_id(headers.get(b"x-giveway-waits-for")),
        )

    def admit(
        self,
        standing: "Standing",
        facts: RequestFacts,
        *,
        key: RequestKey,
        name: str,
        size_bytes: int,
    ) -> Admission:
        """Which class it has, and what it will cost."""
        rank, unknown = standing.rank, standing.asked_class_unknown
        if facts.service_tier is not None:
            rank, unknown = self.classifier.find(
                standing.rules, standing.headers, service_tier=facts.service_tier
            )
        tenant = standing.tenant
        request = Request(
            key=key,
            rank=rank,
            tenant=tenant,
            prompt_tokens=facts.prompt_tokens,
            maximum_output_tokens=facts.maximum_output_tokens,
            answers=facts.answers,
            size_bytes=size_bytes,
            patience_s=standing.patience_s,
            name=name,
            workflow=standing.workflow,
            waits_for=standing.waits_for,
            ceiling_rank=standing.rules.ceiling,
            shows_first_token=facts.streams,
        )
        return Admission(
            request=request,
            class_name=self.class_names[rank],
            tenant=tenant,
            asked_class_unknown=unknown,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Standing:
    """What one policy makes of the headers of a request."""

    policy: RuntimePolicy
    headers: Mapping[bytes, bytes]
    tenant: TenantName
    rules: Rules
    rank: int
    """Of a request whose body names no service tier."""
    asked_class_unknown: bool
    patience_s: float | None
    """None: no wish."""
    workflow: str | None
    """None: none was named."""
    waits_for: str | None
    """None: it waits for nothing."""


def _patience_s(milliseconds: bytes | None) -> float | None:
    """The client's own patience. What is no whole number of milliseconds above 0 says nothing."""
    if milliseconds is None or not _MILLISECONDS.fullmatch(milliseconds):
        return None
    return int(milliseconds) / 1000
