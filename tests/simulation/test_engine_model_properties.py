"""The engine model against a slow and plain engine, on random loads."""

from dataclasses import dataclass

from giveway_simulation.engine_model import EngineLimits, EngineModel, SchedulingPolicy, Work
from giveway_simulation.engine_pods import PODS
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.simulation.reference_engine import ReferenceEngine

MAXIMUM_STEPS = 5_000


@dataclass(frozen=True)
class Arriving:
    at_step: int
    prompt_tokens: int
    output_tokens: int
    priority: int
    abort_after: int | None
    """Steps after the arrival. None: it is never aborted."""


arriving = st.builds(
    Arriving,
    at_step=st.integers(0, 30),
    prompt_tokens=st.integers(1, 40),
    output_tokens=st.integers(1, 20),
    priority=st.integers(0, 2),
    abort_after=st.none() | st.integers(1, 20),
)
engine_limits = st.builds(
    EngineLimits,
    max_num_seqs=st.integers(1, 6),
    max_num_batched_tokens=st.integers(6, 40),
    kv_cache_tokens=st.integers(64, 160),
    block_tokens=st.sampled_from([1, 3, 4, 16]),
    scheduling_policy=st.sampled_from(SchedulingPolicy),
)


@settings(max_examples=200, deadline=None)
@example(
    limits=EngineLimits(
        max_num_seqs=4,
        max_num_batched_tokens=8,
        kv_cache_tokens=64,
        scheduling_policy=SchedulingPolicy.PRIORITY,
    ),
    load=[Arriving(0, 20, 19, 0, None), Arriving(1, 20, 11, 1, None), Arriving(2, 1, 12, 0, None)],
)
@given(limits=engine_limits, load=st.lists(arriving, min_size=1, max_size=12))
def test_model_does_what_the_plain_engine_does_step_by_step(
    limits: EngineLimits, load: list[Arriving]
) -> None:
    """Same evictions, tokens and ends in every step; blocks never over the limit; all ends once."""
    model = EngineModel(PODS["h100-llama-3-8b"], limits)
    oracle = ReferenceEngine(limits)
    works = [
        (each, Work(key=key, prompt_tokens=each.prompt_tokens, output_tokens=each.output_tokens,
                    priority=each.priority))
        for key, each in enumerate(sorted(load, key=lambda each: each.at_step))
    ]  # fmt: skip
    ended: set[int] = set()
    now_s = 0.0
    for number in range(MAXIMUM_STEPS):
        for each, work in works:
            if each.at_step == number:
                model.submit(work)
                oracle.submit(work)
            elif each.abort_after is not None and each.at_step + each.abort_after == number:
                was_live = model.abort(work.key)
                assert was_live == (work.key not in ended)
                oracle.abort(work.key)
                ended.add(work.key)
        preempted, emitted, finished = oracle.step()
        step = model.start_step(now_s=now_s)
        if step is None:
            assert not emitted
            if number > 60:
                break
            continue
        assert step.end_s > now_s
        now_s = step.end_s
        statistics = model.statistics()
        assert statistics.kv_blocks_used <= limits.kv_blocks
        assert statistics.running <= limits.max_num_seqs
        assert step.tokens <= limits.max_num_batched_tokens
        end = model.finish_step()
        assert set(step.preempted) == preempted
        assert set(end.finished) == finished
        assert len(end.finished) == len(finished), "a sequence ended twice"
        assert set(model.decoding()) == emitted - finished
        assert model.statistics().kv_blocks_used == oracle.used_blocks
        assert not ended & finished
        ended |= finished
    assert ended == {work.key for _, work in works}
    assert model.statistics().kv_blocks_used == 0


@settings(max_examples=60, deadline=None)
@given(limits=engine_limits, load=st.lists(arriving, min_size=1, max_size=12))
def test_engine_is_never_idle_while_something_waits(
    limits: EngineLimits, load: list[Arriving]
) -> None:
    """Work conserving: while anything is left each step computes tokens, or at least evicts."""
    model = EngineModel(PODS["h100-llama-3-8b"], limits)
    for key, each in enumerate(load):
        model.submit(
            Work(key=key, prompt_tokens=each.prompt_tokens, output_tokens=each.output_tokens)
        )
    for _ in range(MAXIMUM_STEPS):
        statistics = model.statistics()
        step = model.start_step(now_s=0.0)
        if step is None:
            assert statistics.running == statistics.waiting == 0
            return
        assert step.tokens >= 1 or step.preempted
        model.finish_step()
    raise AssertionError("never done")
