"""How do the scheduler's decisions become deeds?"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from giveway_admission.admitting import Admitter
from giveway_admission.recent_decisions import RecentDecisions
from giveway_admission.runtime_policies import Admission, RuntimePolicy
from giveway_policy.defaults import default_document, default_spec
from giveway_policy.documents import PolicyDocument, PolicyName, make_document
from giveway_policy.enumerations import Mode
from giveway_policy.mechanics import Concurrency
from giveway_scheduler import (
    Dispatch,
    Evict,
    Expire,
    Reject,
    Request,
    RequestKey,
    TenantName,
    Usage,
)

from tests.support.waiting import until


def document(*, seats: int = 2, mode: Mode = Mode.ENFORCE) -> PolicyDocument:
    spec = default_spec().model_copy(
        update={"mode": mode, "concurrency": Concurrency(seats=seats, reserved_seats=0)}
    )
    return make_document(PolicyName(name="test"), spec, epoch=1, generation=1)


class FakeExchange:
    """Writes down what it is told, and may do something at its dispatch."""

    def __init__(self, told: list[str], name: str) -> None:
        self.told = told
        self.name = name
        self.at_dispatch: Callable[[], object] | None = None

    def _note(self, what: str) -> None:
        self.told.append(f"{what} {self.name}")

    def dispatch(self, decision: Dispatch) -> None:
        self._note("dispatch")
        if self.at_dispatch is not None:
            self.at_dispatch()

    def pass_observed(self) -> None:
        self._note("observed")

    def reject(self, decision: Reject) -> None:
        self._note("reject")

    def evict(self, decision: Evict) -> None:
        self._note("evict")

    def expire(self, decision: Expire) -> None:
        self._note("expire")

    def take_back(self) -> None:
        self._note("take back")

    def break_down(self) -> None:
        self._note("break down")


class Stand:
    """An admitter, and exchanges whose deeds all go into one list."""

    def __init__(self, policy: PolicyDocument) -> None:
        self.told: list[str] = []
        self.admitter = Admitter(
            RuntimePolicy.build(policy),
            loop=asyncio.get_running_loop(),
            recent_decisions=RecentDecisions(),
            generator=random.Random(1),
        )
        self.admitter.set_engine_available(True)
        self._names = (f"r{number}" for number in itertools.count(1))

    def admission(self, *, patience_s: float | None = None) -> Admission:
        request = Request(
            key=self.admitter.next_key(),
            rank=0,
            tenant=TenantName("acme"),
            prompt_tokens=10,
            maximum_output_tokens=10,
            patience_s=patience_s,
        )
        return Admission(
            request=request, class_name="realtime", tenant="acme", asked_class_unknown=False
        )

    def offer(self, *, patience_s: float | None = None) -> tuple[FakeExchange, RequestKey]:
        exchange = FakeExchange(self.told, next(self._names))
        admission = self.admission(patience_s=patience_s)
        self.admitter.offer(exchange, admission)
        return exchange, admission.request.key


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    """Two seats."""
    made = Stand(document())
    yield made
    made.admitter.close()


async def test_a_freed_seat_is_handed_on_before_the_call_returns(stand: Stand) -> None:
    """No turn of the loop lies between the end of one request and the sending of the next."""
    keys = [stand.offer()[1] for _ in range(3)]
    assert stand.told == ["dispatch r1", "dispatch r2"]
    stand.admitter.finish(keys[0], usage=Usage(prompt_tokens=10, output_tokens=1))
    assert stand.told[-1] == "dispatch r3"
    stand.admitter.cancel(keys[1], usage=None)
    stand.admitter.finish(keys[2], usage=None)
    assert stand.admitter.live == 0
    assert stand.admitter.statistics().running == 0


async def test_what_a_deed_leads_to_comes_after_the_deeds_before_it(stand: Stand) -> None:
    """A request that ends at once inside its own dispatch does not disturb the order."""
    ended = FakeExchange(stand.told, "brief")
    admission = stand.admission()
    ended.at_dispatch = lambda: stand.admitter.finish(admission.request.key, usage=None)
    stand.admitter.offer(ended, admission)
    stand.offer()
    stand.offer()
    assert stand.told == ["dispatch brief", "dispatch r1", "dispatch r2"]
    assert stand.admitter.live == 2


async def test_a_fault_in_a_deed_costs_that_request_alone(stand: Stand) -> None:
    """Its exchange is broken down; the decisions after it are carried out all the same."""

    def fail() -> None:
        raise RuntimeError("a fault of ours")

    first, first_key = stand.offer()
    _, second_key = stand.offer()
    faulty, admission = FakeExchange(stand.told, "faulty"), stand.admission()
    faulty.at_dispatch = fail
    stand.admitter.offer(faulty, admission)
    stand.offer()
    stand.told.clear()
    stand.admitter.finish(first_key, usage=None)
    assert stand.told == ["dispatch faulty", "break down faulty"]
    stand.admitter.cancel(admission.request.key, usage=None)
    assert stand.told[-1] == "dispatch r3"
    stand.admitter.finish(second_key, usage=None)
    assert first.name == "r1"


async def test_time_alone_ends_a_wait(stand: Stand) -> None:
    """A6: one timer at the moment the scheduler names; nobody polls."""
    for _ in range(2):
        stand.offer()
    stand.offer(patience_s=0.02)
    await until(lambda: "expire r3" in stand.told, what="it expires")
    assert stand.admitter.live == 2


async def test_while_the_engine_is_away_everything_waits(stand: Stand) -> None:
    """Nothing is dispatched, and all goes in order when it is back."""
    stand.admitter.set_engine_available(False)
    stand.offer()
    stand.offer()
    assert stand.told == []
    stand.admitter.set_engine_available(True)
    assert stand.told == ["dispatch r1", "dispatch r2"]


async def test_a_requeued_request_goes_again_in_its_old_place(stand: Stand) -> None:
    """It is before one that came later, and its seat was given back meanwhile."""
    keys = [stand.offer()[1] for _ in range(3)]
    stand.told.clear()
    stand.admitter.set_engine_available(False)
    stand.admitter.requeue(keys[0])
    stand.admitter.requeue(keys[1])
    stand.admitter.set_engine_available(True)
    assert stand.told == ["dispatch r1", "dispatch r2"]


async def test_in_observe_mode_the_scheduler_only_looks_on() -> None:
    """All go at once; what it would have done is remembered, and no seat of its leaks."""
    stand = Stand(document(seats=2, mode=Mode.OBSERVE))
    keys = [stand.offer()[1] for _ in range(5)]
    assert stand.told == [f"observed r{number}" for number in range(1, 6)]
    assert stand.admitter.statistics().running == 2
    assert stand.admitter.statistics().queued == 3
    for key in keys:
        stand.admitter.finish(key, usage=Usage(prompt_tokens=1, output_tokens=1))
    assert stand.told == [f"observed r{number}" for number in range(1, 6)]
    now = stand.admitter.statistics()
    assert (now.running, now.queued, stand.admitter.live) == (0, 0, 0)
    stand.admitter.close()


async def test_enforcing_begins_with_the_next_request_and_spares_the_running() -> None:
    """A change from Observe to Enforce at run time: shadows end as shadows."""
    stand = Stand(document(seats=1, mode=Mode.OBSERVE))
    observed = [stand.offer()[1] for _ in range(3)]
    stand.admitter.configure(RuntimePolicy.build(document(seats=1)))
    _, enforced = stand.offer()
    assert stand.told == ["observed r1", "observed r2", "observed r3"]
    for key in observed:
        stand.admitter.finish(key, usage=None)
    assert stand.told[-1] == "dispatch r4"
    stand.admitter.finish(enforced, usage=None)
    assert stand.admitter.statistics().running == 0
    stand.admitter.close()


async def test_a_policy_that_cannot_work_changes_nothing(stand: Stand) -> None:
    """The scheduler refuses the settings: the last policy stays in force."""
    policy = RuntimePolicy.build(default_document())
    broken = replace(policy, settings=replace(policy.settings, classes=()))
    with pytest.raises(ValueError, match="class"):
        stand.admitter.configure(broken)
    assert stand.admitter.statistics().seats == 2
