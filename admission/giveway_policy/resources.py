"""What can an SLOPolicy say?

The descriptions are what `kubectl explain` shows. The models check the shape of one field at a
time and fill in the defaults, also those that depend on another field; what fields mean together
is checked in `checks`. Reading a resource that is complete changes nothing in it.
"""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from giveway_policy.enumerations import (
    Indicator,
    Kind,
    Mode,
    OverLimit,
    Preemption,
    TrustedHeader,
    UnknownCredential,
)
from giveway_policy.fields import (
    CLASS_PATTERN,
    ByteSize,
    ClassName,
    LabelKey,
    LabelValue,
    Model,
    Percent,
    ResourceName,
    SourceName,
    TenantName,
    Text,
)
from giveway_policy.limits import Limits
from giveway_policy.mechanics import (
    Accounting,
    Adjustment,
    AntiStarvation,
    Concurrency,
    Engine,
    Scheduling,
)

API_VERSION = "giveway.dev/v1alpha1"

INTERACTIVE_TIME_TO_LIVE_S = 15
"""A6: web clients leave after about 10 s."""
BATCH_TIME_TO_LIVE_S = 3600


class Selector(Model):
    match_labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        max_length=32,
        description="Labels that a pod must have, all of them.",
    )


class ClassQueue(Model):
    capacity: int = Field(
        default=5000,
        ge=0,
        le=1_000_000,
        description=(
            "Requests of this class that may wait in one proxy. When it is full, a newcomer is "
            "refused with 429 queue_full (of the tenant with most entries the newest goes first, "
            "if that is another tenant's). 0: nothing waits."
        ),
    )
    time_to_live_seconds: int = Field(
        default_factory=lambda: INTERACTIVE_TIME_TO_LIVE_S,
        ge=1,
        le=604_800,
        description=(
            "Seconds after which a waiting request is answered 504 queue_timeout and never reaches "
            "the engine. Default: 15 for a class of kind Interactive, 3600 for Batch."
        ),
    )


class Objective(Model):
    indicator: Indicator = Field(
        description=(
            "What is measured, per request of the class, at the proxy. TimeToFirstToken: from "
            "arrival to the first token out, of streamed answers. InterTokenLatency: a gap between "
            "two tokens of a stream. RequestDuration: from arrival to the end, of completed "
            "requests. QueueWait: from arrival to dispatch. ErrorRate: whether it failed."
        )
    )
    threshold_milliseconds: int | None = Field(
        default=None,
        ge=1,
        le=86_400_000,
        description=(
            "A measurement up to this counts as good. Required, except for ErrorRate, which has "
            "none."
        ),
    )
    target_percent: Percent = Field(
        description='Share of measurements that has to be good, as a decimal string like "99.5".'
    )


def _default_over_limit(data: dict[str, Any]) -> OverLimit:
    """H4: interactive requests are refused at once, batch waits."""
    return OverLimit.QUEUE if data.get("kind") is Kind.BATCH else OverLimit.REJECT


class ServiceClass(Model):
    name: ClassName = Field(
        description="Name of the class, unique in the policy. The first class of the list is the "
        "highest."
    )
    kind: Kind = Field(
        description="Interactive: somebody watches the answer appear. Batch: nobody does, so the "
        "class gives way to interactive ones."
    )
    weight: int = Field(
        default=1,
        ge=0,
        le=1_000_000,
        description="Share under overload, relative to the other classes that have work. "
        "WeightedRandom and DeficitRoundRobin share by it among all classes; SLOAware only among "
        "those between the highest and batch, and among the Batch ones; DynamicAging and "
        "InteractiveFirst not at all. With 0 a class that shares is served only when no other one "
        "contends, or by its boost.",
    )
    limits: Limits = Field(
        default_factory=Limits, description="What all requests of the class together may use."
    )
    over_limit: OverLimit = Field(
        default_factory=_default_over_limit,
        description="What happens to a request for which a limit has nothing left. Reject: 429 "
        "rate_limited. Queue: it waits until it can pay. Default: Reject for Interactive, Queue "
        "for Batch.",
    )
    queue: ClassQueue = Field(
        default_factory=ClassQueue,
        validate_default=True,
        description="Where requests of the class wait.",
    )
    objectives: tuple[Objective, ...] = Field(
        default=(),
        max_length=8,
        description="What is owed to the class. A class without objectives is served as well as "
        "is possible.",
    )
    deadband_percent: Percent | None = Field(
        default=None,
        description="Deviation from the target, in percentage points, below which the weight of "
        "this class is left alone. Default: the policy's adjustment.deadbandPercent. Without the "
        "operator it means nothing.",
    )

    @field_validator("queue", mode="after")
    @classmethod
    def _fill_in_time_to_live(cls, queue: ClassQueue, info: ValidationInfo) -> ClassQueue:
        if "time_to_live_seconds" in queue.model_fields_set:
            return queue
        is_batch = info.data.get("kind") is Kind.BATCH
        seconds = BATCH_TIME_TO_LIVE_S if is_batch else INTERACTIVE_TIME_TO_LIVE_S
        return queue.model_copy(update={"time_to_live_seconds": seconds})


class SourceClass(Model):
    source: SourceName = Field(
        description="What the request states in X-Giveway-Source, like nightly-report."
    )
    class_name: ClassName = Field(
        alias="class", description="The class that such a request is served in."
    )


class SecretReference(Model):
    namespace: ResourceName = Field(description="Namespace of the Secret.")
    name: ResourceName = Field(description="Name of the Secret. Every value in it is read.")


class Jwt(Model):
    issuer: Text = Field(description="The iss claim that a token must carry.")
    audience: Text | None = Field(
        default=None,
        description="The aud claim that a token must carry. Absent: the claim is not looked at.",
    )
    keys_file: Text | None = Field(
        default=None,
        description="File with the public keys as a JSON Web Key Set, relative to the policy's "
        "file. Only without Kubernetes.",
    )
    keys_secret_ref: SecretReference | None = Field(
        default=None, description="Secret with the public keys as a JSON Web Key Set."
    )


class Identity(Model):
    trusted_headers: tuple[TrustedHeader, ...] = Field(
        default=(),
        max_length=3,
        description="Headers of giveway's own that a client may use to say who it is or which "
        "class it wants. All others are ignored. Trust X-Giveway-Tenant only behind a gateway "
        "that sets it.",
    )
    fallback_tenant: TenantName = Field(
        default="anonymous",
        description="Name under which requests of nobody known are counted and limited.",
    )
    fallback_class: str = Field(
        default_factory=str,
        pattern=CLASS_PATTERN,
        max_length=63,
        description="Highest class that the fallback tenant may have. Default: the lowest class "
        "of the policy.",
    )
    fallback_default_class: str = Field(
        default_factory=str,
        pattern=CLASS_PATTERN,
        max_length=63,
        description="Class of a fallback tenant's request whose class neither the request nor its "
        "source decides. Default: fallbackClass.",
    )
    unknown_credential: UnknownCredential = Field(
        default=UnknownCredential.FALLBACK,
        description="What happens to a request with an API key that no tenant has. Fallback: it "
        "belongs to the fallback tenant. Reject: 401 unauthorized.",
    )
    jwt: Jwt | None = Field(
        default=None,
        description="How JSON Web Tokens are verified. Absent: a token is a key like any other.",
    )


class Queue(Model):
    capacity: int = Field(
        default=8000,
        ge=1,
        le=1_000_000,
        description="Requests of all classes together that may wait in one proxy. When it is full, "
        "the newest of the lowest class below the newcomer's gives up its place (429 evicted).",
    )
    bytes: ByteSize = Field(
        default=512 * 2**20,
        description="Memory for the bodies of waiting requests in one proxy, like 512Mi.",
    )
    keep_alive_seconds: int = Field(
        default=0,
        ge=0,
        le=300,
        description="Interval of comments sent to a waiting stream, so that nobody on the way "
        "closes it. They commit the answer to status 200. 0: none are sent.",
    )


class SLOPolicySpec(Model):
    selector: Selector = Field(
        default_factory=Selector,
        description="Engine pods that the policy governs. Absent or empty: all in its namespace. "
        "Without Kubernetes it is not looked at.",
    )
    mode: Mode = Field(
        default=Mode.ENFORCE,
        description="Enforce: limit, queue and order. Observe: decide and count, but let every "
        "request go at once.",
    )
    classes: tuple[ServiceClass, ...] = Field(
        min_length=1,
        max_length=16,
        description="The service classes, highest first.",
    )
    sources: tuple[SourceClass, ...] = Field(
        default=(),
        max_length=256,
        description="Class by the source that a request states, for all tenants, up to the "
        "tenant's highest class. A tenant's own sources go before these.",
    )
    scheduling: Scheduling = Field(
        default_factory=Scheduling,
        validate_default=True,
        description="Whose request goes next.",
    )
    preemption: Preemption = Field(
        default=Preemption.ENGINE,
        description="What may be done to a running request of a lower class. None: nothing, so "
        "the engine is not told the order. Engine: it is told the order and may preempt. "
        "AbortBeforeFirstToken: moreover, a batch request that has shown no token yet is put back "
        "into the queue when a higher class waits and the prompt work lost is less than the wait "
        "saved.",
    )
    concurrency: Concurrency = Field(
        default_factory=Concurrency, description="How much may be at one engine at once."
    )
    anti_starvation: AntiStarvation = Field(
        default_factory=AntiStarvation,
        description="How a class that is never served gets a turn.",
    )
    adjustment: Adjustment = Field(
        default_factory=Adjustment,
        description="How the operator moves weights after the objectives. Without the operator "
        "weights stay as they are.",
    )
    identity: Identity = Field(
        default_factory=Identity,
        validate_default=True,
        description="How the tenant and the class of a request are found.",
    )
    queue: Queue = Field(
        default_factory=Queue, description="Room for waiting requests of all classes together."
    )
    engine: Engine = Field(default_factory=Engine, description="What the engine is and can do.")
    accounting: Accounting = Field(
        default_factory=Accounting, description="How the cost of a request in tokens is estimated."
    )

    @field_validator("scheduling", mode="after")
    @classmethod
    def _fill_in_aging(cls, scheduling: Scheduling, info: ValidationInfo) -> Scheduling:
        classes: Sequence[ServiceClass] = info.data.get("classes", ())
        return scheduling.with_aging_of([each.name for each in classes])

    @field_validator("identity", mode="after")
    @classmethod
    def _fill_in_fallback_class(cls, identity: Identity, info: ValidationInfo) -> Identity:
        classes: Sequence[ServiceClass] = info.data.get("classes", ())
        if not classes:
            return identity
        ceiling = identity.fallback_class or classes[-1].name
        default = identity.fallback_default_class or ceiling
        return identity.model_copy(
            update={"fallback_class": ceiling, "fallback_default_class": default}
        )

    def class_rank(self, name: str) -> int | None:
        """Place of the class in the policy, 0 for the highest. None: there is no such class."""
        for rank, service_class in enumerate(self.classes):
            if service_class.name == name:
                return rank
        return None


class Metadata(Model):
    """What Kubernetes keeps about an object. Only name and namespace mean something here."""

    name: ResourceName = Field(description="Name of the resource.")
    namespace: ResourceName | None = Field(default=None, description="Namespace of the resource.")
    labels: dict[str, str] | None = Field(default=None, description="Labels.")
    annotations: dict[str, str] | None = Field(default=None, description="Annotations.")
    generate_name: str | None = Field(default=None, description="Set by Kubernetes.")
    uid: str | None = Field(default=None, description="Set by Kubernetes.")
    resource_version: str | None = Field(default=None, description="Set by Kubernetes.")
    generation: int | None = Field(default=None, description="Set by Kubernetes.")
    creation_timestamp: str | None = Field(default=None, description="Set by Kubernetes.")
    deletion_timestamp: str | None = Field(default=None, description="Set by Kubernetes.")
    deletion_grace_period_seconds: int | None = Field(
        default=None, description="Set by Kubernetes."
    )
    self_link: str | None = Field(default=None, description="Set by Kubernetes.")
    finalizers: tuple[str, ...] | None = Field(default=None, description="Set by Kubernetes.")
    owner_references: tuple[dict[str, Any], ...] | None = Field(
        default=None, description="Set by Kubernetes."
    )
    managed_fields: tuple[dict[str, Any], ...] | None = Field(
        default=None, description="Set by Kubernetes."
    )


class SLOPolicy(Model):
    """Classes, limits, order and latency objectives of the engines it selects."""

    api_version: Literal["giveway.dev/v1alpha1"] = Field(description="giveway.dev/v1alpha1")
    kind: Literal["SLOPolicy"] = Field(description="SLOPolicy")
    metadata: Metadata = Field(description="Name and namespace.")
    spec: SLOPolicySpec = Field(description="What is wanted.")
    status: dict[str, Any] | None = Field(
        default=None, description="What the operator reports. Ignored in a file."
    )
