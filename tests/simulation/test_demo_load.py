"""The demonstration's load: real rows, the wanted work, the same for the same seed."""

import itertools

import pytest
from giveway_policy.defaults import default_spec
from giveway_policy.enumerations import Kind
from giveway_policy.resources import ServiceClass
from giveway_simulation.demo_load import (
    DUMP_AT_RATIO,
    DemoLoadError,
    DemoTraffic,
    Limits,
    mixed_requests,
    plan_demo,
    work_of,
)
from giveway_simulation.demo_traffic import demo_traffic
from giveway_simulation.load_records import PlannedRequest
from giveway_simulation.traces import TraceRow

WORK_PER_S, WINDOW_S = 40_000.0, 30.0
WIDE = Limits()


@pytest.fixture(scope="module", name="traffic")
def traffic_fixture() -> DemoTraffic:
    return demo_traffic(default_spec())


def plan_of(
    traffic: DemoTraffic, *, seed: int = 1, limits: Limits = WIDE
) -> tuple[PlannedRequest, ...]:
    return plan_demo(traffic, work_per_s=WORK_PER_S, window_s=WINDOW_S, seed=seed, limits=limits)


def work_in(plan: tuple[PlannedRequest, ...], class_name: str) -> float:
    return sum(
        work_of(each.prompt_tokens, each.output_tokens)
        for each in plan
        if each.class_name == class_name
    )


def test_each_kind_brings_its_share_of_the_work(traffic: DemoTraffic) -> None:
    """30 % chat, 30 % code, 40 % batch of 40,000 x 30, to within one request."""
    plan = plan_of(traffic)
    total = WORK_PER_S * WINDOW_S
    for class_name, share in (("realtime", 0.3), ("standard", 0.3), ("batch", 0.4)):
        assert work_in(plan, class_name) == pytest.approx(share * total, rel=0.05)


def test_batch_arrives_at_once_and_the_rest_all_through(traffic: DemoTraffic) -> None:
    """Y14: the peak is a batch job that hands in everything at one moment."""
    plan = plan_of(traffic)
    dumped = {each.due_s for each in plan if each.class_name == "batch"}
    assert dumped == {WINDOW_S * DUMP_AT_RATIO}
    chat = [each.due_s for each in plan if each.class_name == "realtime"]
    assert chat[0] < 2
    assert chat[-1] > WINDOW_S - 2
    assert all(0 <= each.due_s <= WINDOW_S for each in plan)
    assert all(one.due_s <= other.due_s for one, other in itertools.pairwise(plan))


def test_chat_keeps_the_gaps_and_lengths_of_its_trace(traffic: DemoTraffic) -> None:
    """A slice of real traffic: lengths row by row, gaps stretched by one factor."""
    chat = [each for each in plan_of(traffic) if each.class_name == "realtime"]
    lengths = [(each.prompt_tokens, each.output_tokens) for each in chat]
    rows = [(row.prompt_tokens, row.output_tokens) for row in traffic.chat_trace]
    start = next(i for i in range(len(rows)) if rows[i : i + len(lengths)] == lengths)
    times = [row.arrival_s or 0.0 for row in traffic.chat_trace[start : start + len(chat)]]
    factor = (chat[-1].due_s - chat[0].due_s) / (times[-1] - times[0])
    for each, time_s in zip(chat, times, strict=True):
        assert each.due_s == pytest.approx((time_s - times[0]) * factor, abs=1e-6)


def test_equal_seeds_make_equal_plans_and_others_do_not(traffic: DemoTraffic) -> None:
    """A run can be repeated."""
    assert plan_of(traffic, seed=3) == plan_of(traffic, seed=3)
    assert plan_of(traffic, seed=3) != plan_of(traffic, seed=4)


def test_requests_fit_the_engine(traffic: DemoTraffic) -> None:
    """A small context cuts prompts and answers instead of getting refusals."""
    plan = plan_of(traffic, limits=Limits(prompt_tokens=900, output_tokens=100))
    assert max(each.prompt_tokens for each in plan) == 900
    assert max(each.output_tokens for each in plan) == 100
    assert work_in(plan, "realtime") == pytest.approx(0.3 * WORK_PER_S * WINDOW_S, rel=0.05)


def test_a_trace_that_is_too_short_or_has_no_times_is_refused(traffic: DemoTraffic) -> None:
    """The error says what may be done."""
    row = TraceRow(arrival_s=0.0, prompt_tokens=100, output_tokens=10)
    untimed = TraceRow(arrival_s=None, prompt_tokens=100, output_tokens=10)
    for rows, message in (([row] * 10, "10 rows"), ([untimed] * 10, "no arrival times")):
        short = demo_traffic(default_spec(), chat_trace=rows)
        with pytest.raises(DemoLoadError, match=message):
            plan_of(short)


def test_the_endless_mix_has_the_same_shares(traffic: DemoTraffic) -> None:
    """What probes the capacity resembles what is then sent."""
    requests = mixed_requests(traffic, seed=1, limits=Limits())
    sample = tuple(itertools.islice(requests, 6000))
    total = sum(work_of(each.prompt_tokens, each.output_tokens) for each in sample)
    assert work_in(sample, "realtime") / total == pytest.approx(0.3, abs=0.03)
    assert work_in(sample, "batch") / total == pytest.approx(0.4, abs=0.03)
    alone = mixed_requests(traffic, seed=1, limits=Limits(), batch=False)
    assert {each.class_name for each in itertools.islice(alone, 500)} == {"realtime", "standard"}


def test_classes_are_found_by_kind_whatever_their_names() -> None:
    """A policy of one's own decides what chat, code and batch are called and owed."""
    spec = default_spec()
    one = spec.model_copy(
        update={
            "classes": (
                ServiceClass(name="people", kind=Kind.INTERACTIVE),
                ServiceClass(name="jobs", kind=Kind.BATCH),
            )
        }
    )
    traffic = demo_traffic(one)
    assert [each.class_name for each in traffic.classes] == ["people", "people", "jobs"]
    assert traffic.chat.first_token_target_s == 1.0
    published = demo_traffic(spec)
    assert published.chat.first_token_target_s == 0.3
    assert published.code.first_token_target_s == 1.0
    assert published.batch.first_token_target_s is None
