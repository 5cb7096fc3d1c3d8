"""Does the scheduler's own account of itself agree with the model, and is it idle for a reason?"""

import math
from collections.abc import Iterable

from giveway_scheduler import (
    Algorithm,
    Kind,
    Scheduler,
    Statistics,
)
from giveway_scheduler.arrivals import SLACK
from giveway_scheduler.pressure import LOOK_S

from tests.scheduler.machine_books_support import Live
from tests.scheduler.machine_model_support import Model


def check_statistics(model: Model, statistics: Statistics) -> None:
    """Every number is that of the model, and none that counts something is below 0."""
    waiting, running = model.waiting(), model.running()
    assert statistics.queued == len(waiting), f"{statistics.queued}, not {len(waiting)}"
    assert statistics.running == len(running)
    assert statistics.queued_bytes == sum(each.request.size_bytes for each in waiting)
    assert statistics.unprefilled_tokens == model.gate_tokens
    assert statistics.gate_open == model.gate_is_open
    assert statistics.engine_available == model.engine_up
    assert statistics.algorithm == model.settings.algorithm.value
    assert 0.0 <= statistics.pressure_ratio <= 1.0
    _check_seats(model, statistics)
    assert [each.name for each in statistics.classes] == [
        each.name for each in model.settings.classes
    ]
    for each in statistics.classes:
        mine = [live for live in waiting if live.served_in == each.name]
        assert each.queued == len(mine)
        assert each.queued_bytes == sum(live.request.size_bytes for live in mine)
        assert each.queued_tokens == sum(live.cost for live in mine)
        oldest_s = min((live.offered_s for live in mine), default=model.now_s)
        assert each.oldest_waited_s == model.now_s - oldest_s
        assert each.running == sum(live.served_in == each.name for live in running)
        assert each.seats >= 1
        assert each.output_estimate_tokens >= 0
        assert each.served_tokens >= 0.0
        assert each.boosts >= 0
        model.classes[each.name].compare(
            each.requests, each.tokens, model.now_s, exact=model.moves < 2
        )
    _check_tenants(model, statistics)
    _check_ledger(model, statistics)


def _check_seats(model: Model, statistics: Statistics) -> None:
    concurrency = model.settings.concurrency
    assert 1 <= statistics.seats <= concurrency.seats
    if not model.was_lowered:
        assert statistics.seats == concurrency.seats
    most = concurrency.batch_maximum
    least = concurrency.batch_minimum
    if model.settings.algorithm is not Algorithm.INTERACTIVE_FIRST:
        least = most
    assert least <= statistics.batch_seats <= most


def _check_tenants(model: Model, statistics: Statistics) -> None:
    known = {each.name: each for each in statistics.tenants}
    assert {each.served_for for each in model.live.values()} <= known.keys()
    for forgotten in model.tenants.keys() - known.keys():
        is_named = forgotten in model.settings.tenants
        assert model.is_reconfigured or not is_named, "its buckets are lost"
        model.former_budgets.append(model.tenants.pop(forgotten))
    for name, each in known.items():
        mine = [live for live in model.live.values() if live.served_for == name]
        assert each.queued == sum(not live.is_running for live in mine)
        assert each.running == sum(live.is_running for live in mine)
        assert each.served_tokens >= 0.0
        model.tenant_budget(name).compare(
            each.requests, each.tokens, model.now_s, exact=model.moves < 2
        )


def _check_ledger(model: Model, statistics: Statistics) -> None:
    """Tokens reserved = charged + refunded + held, and each of them is what it should be."""
    mine, theirs = model.ledger, statistics.ledger
    held = sum(each.cost for each in model.live.values() if each.paid is not None)
    for expected, said in (
        (mine.reserved, theirs.reserved_tokens),
        (mine.overrun, theirs.overrun_tokens),
        (mine.charged, theirs.charged_tokens),
        (mine.refunded, theirs.refunded_tokens),
        (held, theirs.held_tokens),
        (theirs.reserved_tokens + theirs.overrun_tokens, mine.charged + mine.refunded + held),
    ):
        assert math.isclose(expected, said, rel_tol=1e-9, abs_tol=1e-6), f"{said}, not {expected}"
        assert said >= 0.0


def check_work_conserving(model: Model) -> None:
    """No seat stays free while a request waits that certainly may go.

    While a bucket is saved for a request larger than it, it is not certain who may (B13).
    """
    if not model.engine_up or any(model.is_large(each) for each in model.waiting()):
        return
    for name in {each.served_in for each in model.waiting()}:
        mine = [each for each in model.waiting() if each.served_in == name]
        if not _class_may_go(model, mine[0]):
            continue
        free = [flow for flow in _flows(mine) if _tenant_lets_go(model, flow)]
        certain = free and all(_can_pay(model, each) for flow in free for each in flow)
        assert not certain, f"{free[0][0].request} could go and does not"


def _class_may_go(model: Model, live: Live) -> bool:
    running, statistics = model.running(), model.statistics
    if len(running) >= statistics.seats:
        return False
    if model.rank_of(live.served_in) == 0:
        return True
    if not model.gate_is_open:
        return False
    lower = [each for each in running if model.rank_of(each.served_in) > 0]
    if len(lower) >= model.lower_seats:
        return False
    if model.class_of(live.served_in).kind is not Kind.BATCH:
        return True
    batch = [each for each in lower if model.class_of(each.served_in).kind is Kind.BATCH]
    return len(batch) < statistics.batch_seats


def _flows(waiting: Iterable[Live]) -> list[list[Live]]:
    flows: dict[str, list[Live]] = {}
    for each in sorted(waiting, key=lambda live: live.order):
        flows.setdefault(each.served_for, []).append(each)
    return list(flows.values())


def _tenant_lets_go(model: Model, flow: list[Live]) -> bool:
    """Has the tenant a request in flight left, and can it pay what may be next of it?

    Where the order is arrival that is the oldest; else any may be next, so all must be payable.
    """
    limit = model.in_flight_limit(flow[0].served_for)
    running = sum(each.served_for == flow[0].served_for for each in model.running())
    if limit is not None and running >= limit:
        return False
    if not model.is_shortest_first(flow[0].served_in):
        del flow[1:]
    budget = model.tenant_budget(flow[0].served_for)
    return all(
        each.paid is not None or budget.wait_s(each.cost, model.now_s) <= 0.0 for each in flow
    )


def _can_pay(model: Model, live: Live) -> bool:
    return live.paid is not None or model.wait_s(live) <= 0.0


def check_announces(model: Model, scheduler: Scheduler) -> None:
    """`next_event_s` is no later than the next expiry, or the next look at a pressure."""
    event_s = scheduler.next_event_s()
    waiting = model.waiting()
    if not waiting:
        assert event_s is None
        return
    assert event_s is not None
    assert event_s <= min(model.deadline_s(each) for each in waiting)
    if model.statistics.pressure_ratio:
        assert event_s <= model.now_s + LOOK_S


def check_nothing_left(model: Model, scheduler: Scheduler, *, peak: int) -> None:
    """When everything has ended, every count is 0 and nothing inside has kept an entry.

    `peak`: most requests that were alive at once.
    """
    assert not model.live
    assert sorted(model.outcomes) == list(range(1, model.offered + 1))
    statistics = scheduler.statistics(now_s=model.now_s)
    assert (statistics.running, statistics.queued, statistics.unprefilled_tokens) == (0, 0, 0)
    assert statistics.ledger.held_tokens == 0.0
    assert not scheduler._entries
    assert not scheduler._inheritance._named
    assert not scheduler._inheritance._waiters
    assert not scheduler._filler._preemption._unanswered
    most = 2 * peak + SLACK + 1
    assert len(scheduler._room._deadlines) <= most
    assert len(scheduler._room._alarms) <= most
    for service_class in scheduler._classes:
        queue = service_class.queue
        assert len(queue._ready) <= most
        assert not queue.entries
        assert not queue._by_size
        flows = queue.all_flows()
        assert {each.tenant.name for each in flows} <= {
            each.name for each in scheduler._tenants.all()
        }
        assert not any(flow.prompts or flow.late for flow in flows)
        assert not queue.lined_up
        assert service_class.budget.saver is None
    named = model.settings.tenants.keys()
    idle = [each for each in scheduler._tenants.all() if each.name not in named]
    assert len(idle) <= model.settings.idle_tenants


def check_windows(model: Model) -> None:
    """Tokens and permits let pass in any window <= burst + rate x window."""
    for budget in (*model.classes.values(), *model.tenants.values(), *model.former_budgets):
        budget.check_windows()
