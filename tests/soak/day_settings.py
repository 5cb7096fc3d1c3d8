"""What the policy says, one change after the other.

Everything that a policy can change does change: algorithm, limits that come, go, grow and shrink, a
class between the others, named tenants, preemption, boosts, seats. Two named tenants stay for ever;
others are named for two changes and then never again, as customers come and go.
"""

from dataclasses import replace

from giveway_scheduler import (
    Algorithm,
    AntiStarvation,
    ClassName,
    ClassSettings,
    Concurrency,
    Kind,
    Limits,
    OverLimit,
    Preemption,
    Settings,
    TenantName,
    TenantSettings,
)

REALTIME, STANDARD, GUEST = ClassName("realtime"), ClassName("standard"), ClassName("guest")
FLOWS, BATCH = ClassName("flows"), ClassName("batch")
IDLE_TENANTS = 300
ALWAYS_NAMED = ("always-a", "always-b")
_ALGORITHMS = tuple(Algorithm)
_PREEMPTIONS = tuple(Preemption)


def passing_customer(change: int) -> str:
    """The tenant that is named at this change of the policy, and at the next one, for the first
    and last times."""
    return f"customer-{change}"


def settings_at(change: int, algorithm: Algorithm | None = None) -> Settings:
    """The settings that the `change`-th policy asks for. `algorithm` None: it changes too."""
    return Settings(
        algorithm=algorithm or _ALGORITHMS[change % len(_ALGORITHMS)],
        preemption=_PREEMPTIONS[change % len(_PREEMPTIONS)],
        classes=_classes(change),
        tenants=_tenants(change),
        concurrency=Concurrency(
            seats=48 + 8 * (change % 3),
            batch_maximum=30,
            prompt_gate_tokens=None if change % 7 == 6 else 2048,
        ),
        anti_starvation=None if change % 4 == 3 else AntiStarvation(),
        queue_capacity=60,
        idle_tenants=IDLE_TENANTS,
    )


def settings_at_rest(algorithm: Algorithm | None = None) -> Settings:
    """A policy that remembers nobody without work but the two that are always named: in a quiet
    moment, what the scheduler holds under it is always the same."""
    settings = settings_at(0, algorithm)
    always = {name: settings.tenants[TenantName(name)] for name in ALWAYS_NAMED}
    return replace(
        settings,
        tenants={TenantName(name): each for name, each in always.items()},
        idle_tenants=0,
    )


def _classes(change: int) -> tuple[ClassSettings, ...]:
    realtime = ClassSettings(
        name=REALTIME,
        kind=Kind.INTERACTIVE,
        weight=70.0,
        limits=Limits(
            requests_per_s=(430 + 60 * (change % 2)) / 60,
            request_burst=10,
            tokens_per_s=(900_000 + 180_070 * (change % 3)) / 60,
            token_burst=60_000 - 7_777 * (change % 3),
        ),
        first_token_target_s=1.0,
    )
    standard = ClassSettings(
        name=STANDARD,
        kind=Kind.INTERACTIVE,
        weight=25.0,
        # A limit that is gone and comes again begins full.
        limits=Limits()
        if change % 5 == 4
        else Limits(tokens_per_s=777_777 / 60, token_burst=90_001),
        first_token_target_s=5.0,
        time_to_live_s=20.0,
    )
    guest = ClassSettings(
        name=GUEST, kind=Kind.INTERACTIVE, weight=10.0, over_limit=OverLimit.QUEUE
    )
    flows = ClassSettings(
        name=FLOWS, kind=Kind.INTERACTIVE, weight=10.0, over_limit=OverLimit.QUEUE
    )
    batch = ClassSettings(
        name=BATCH,
        kind=Kind.BATCH,
        weight=5.0,
        limits=Limits(
            requests_per_s=11,
            request_burst=50,
            tokens_per_s=(550_000 if change % 2 else 1_010_101) / 60,
            token_burst=100_003,
        ),
        over_limit=OverLimit.QUEUE,
        queue_capacity=50,
        time_to_live_s=900.0,
    )
    if change % 3 == 1:
        return (realtime, guest, standard, flows, batch)
    return (realtime, standard, flows, batch)


def _tenants(change: int) -> dict[TenantName, TenantSettings]:
    first, second = ALWAYS_NAMED
    limits = Limits(
        requests_per_s=3.1, request_burst=6, tokens_per_s=3000.1, token_burst=20_011, in_flight=8
    )
    named = {
        first: TenantSettings(weight=2.0, limits=limits),
        second: TenantSettings(
            limits=Limits()
            if change % 6 == 5
            else Limits(tokens_per_s=(60_001 + 30_000 * (change % 2)) / 60, token_burst=15_013)
        ),
        passing_customer(change): TenantSettings(limits=limits),
    }
    if change:
        named[passing_customer(change - 1)] = TenantSettings(weight=0.5, limits=limits)
    return {TenantName(name): each for name, each in named.items()}
