"""The engine model against hand arithmetic."""

import pytest
from giveway_simulation.engine_model import EngineLimits, EngineModel, SchedulingPolicy, Work
from giveway_simulation.engine_pods import PODS, Pod

from tests.simulation.engine_fixtures import flat_pod

FLAT = flat_pod(step_ms=10.0)


def make_model(
    *,
    seats: int = 8,
    batched_tokens: int = 100,
    kv_tokens: int = 10_000,
    block_tokens: int = 16,
    policy: SchedulingPolicy = SchedulingPolicy.FCFS,
    pod: Pod = FLAT,
) -> EngineModel:
    return EngineModel(
        pod,
        EngineLimits(
            max_num_seqs=seats,
            max_num_batched_tokens=batched_tokens,
            kv_cache_tokens=kv_tokens,
            block_tokens=block_tokens,
            scheduling_policy=policy,
        ),
    )


def run(model: EngineModel, *, steps: int = 10_000) -> tuple[dict[int, float], dict[int, float]]:
    """Run until nothing is left. Returns when each key had its first token and its end."""
    now_s = 0.0
    first: dict[int, float] = {}
    ends: dict[int, float] = {}
    for _ in range(steps):
        step = model.start_step(now_s=now_s)
        if step is None:
            return first, ends
        now_s = step.end_s
        end = model.finish_step()
        first |= dict.fromkeys(end.first_tokens, now_s)
        ends |= dict.fromkeys(end.finished, now_s)
    raise AssertionError(f"not done after {steps} steps")


def test_decode_step_time_is_the_formula_of_the_h100() -> None:
    """128 sequences of 1,000 tokens each on the H100: every term by hand."""
    # (6.1^1.5 + (23.5 * 128 / 1000)^1.5)^(2/3) = (15.066 + 5.217)^(2/3) = 7.437 ms
    # + 0.5 ms + 0.076 us * 128,000 = 9.728 ms + 6 us * 128 = 0.768 ms  ->  18.433 ms
    step_s = PODS["h100-llama-3-8b"].step_s(
        128, sequences=128, context_tokens=128_000, attention_products=0.0
    )
    assert step_s == pytest.approx(0.018433, abs=2e-6)


def test_prefill_step_time_counts_attention_inside_the_chunk() -> None:
    """A chunk of 1,024 tokens at context 2,048: m (x + m/2) = 1024 * 2560."""
    # (15.066 + 24.064^1.5)^(2/3) = (15.066 + 118.05)^(2/3) = 26.07 ms; + 0.5 + 0.006
    # + 0.0009 us * 2,621,440 = 2.359 ms  ->  28.94 ms
    step_s = PODS["h100-llama-3-8b"].step_s(
        1024, sequences=1, context_tokens=0, attention_products=1024 * (2048 + 512)
    )
    assert step_s == pytest.approx(0.02894, abs=2e-5)


def test_prompt_takes_as_many_steps_as_it_has_chunks() -> None:
    """250 tokens at 100 a step: first token after the third, 4 more tokens in 4 more steps."""
    model = make_model()
    model.submit(Work(key=1, prompt_tokens=250, output_tokens=5))
    first, ends = run(model)
    assert first == {1: pytest.approx(0.03)}
    assert ends == {1: pytest.approx(0.07)}


def test_decoding_goes_before_the_next_chunk() -> None:
    """With 3 decoding sequences 97 tokens of 100 are left to a prompt of 195: two steps and one."""
    model = make_model()
    for key in (1, 2, 3):
        model.submit(Work(key=key, prompt_tokens=10, output_tokens=50))
    step = model.start_step(now_s=0.0)
    assert step is not None
    assert step.tokens == 30
    model.finish_step()
    model.submit(Work(key=4, prompt_tokens=195, output_tokens=1))
    tokens = []
    for at in range(3):
        step = model.start_step(now_s=float(at))
        assert step is not None
        tokens.append(step.tokens)
        finished = model.finish_step().finished
    assert tokens == [100, 100, 4]  # 3 + 97, 3 + 97, 3 + 1
    assert finished == (4,)


def test_seats_bound_what_runs_and_the_queue_is_served_in_order() -> None:
    """Two seats, three requests of one token a step: the third begins when the first two end."""
    model = make_model(seats=2)
    for key in (1, 2, 3):
        model.submit(Work(key=key, prompt_tokens=10, output_tokens=4))
    first, _ = run(model)
    assert first == {1: pytest.approx(0.01), 2: pytest.approx(0.01), 3: pytest.approx(0.05)}


def test_whole_prompt_has_to_fit_before_its_first_chunk_is_admitted() -> None:
    """20 blocks, 10 are taken: a prompt of 11 blocks waits though its first chunk would fit."""
    model = make_model(kv_tokens=320)
    model.submit(Work(key=1, prompt_tokens=150, output_tokens=3))
    model.submit(Work(key=2, prompt_tokens=170, output_tokens=1))
    first, ends = run(model)
    # 1: two chunks, first token at 20 ms, end at 40 ms. 2 is admitted then: 60 ms, not 30 ms.
    assert ends[1] == pytest.approx(0.04)
    assert first[2] == pytest.approx(0.06)


def test_head_of_the_queue_blocks_those_behind_it() -> None:
    """A small request does not overtake one that waits for KV blocks, as in vLLM."""
    model = make_model(kv_tokens=320)
    model.submit(Work(key=1, prompt_tokens=150, output_tokens=3))
    model.submit(Work(key=2, prompt_tokens=170, output_tokens=1))
    model.submit(Work(key=3, prompt_tokens=5, output_tokens=1))
    first, _ = run(model)
    assert first[3] >= first[2]


def test_fcfs_evicts_the_last_admitted_and_recomputes_all_it_had() -> None:
    """Two sequences in 4 blocks of 4: when both need a third block the younger one starts anew."""
    model = make_model(kv_tokens=16, block_tokens=4)
    model.submit(Work(key=1, prompt_tokens=7, output_tokens=6))
    model.submit(Work(key=2, prompt_tokens=7, output_tokens=6))
    # After the prompts (2 blocks each) both decode at context 7 -> 8; the next token needs a block.
    now_s = 0.0
    preempted: list[int] = []
    while (step := model.start_step(now_s=now_s)) is not None:
        now_s = step.end_s
        preempted += step.preempted
        model.finish_step()
    prompt_tokens = model.statistics().prompt_tokens
    assert preempted == [2]
    assert model.statistics().preemptions == 1
    # 7 + 7, and again 7 with the 2 tokens that number 2 had generated.
    assert prompt_tokens == 7 + 7 + 9
    assert model.statistics().generation_tokens == 12


@pytest.mark.parametrize(
    ("policy", "victim"), [(SchedulingPolicy.FCFS, 2), (SchedulingPolicy.PRIORITY, 1)]
)
def test_policy_chooses_the_victim(policy: SchedulingPolicy, victim: int) -> None:
    """fcfs evicts the youngest, priority the one whose number is highest."""
    model = make_model(kv_tokens=16, block_tokens=4, policy=policy)
    model.submit(Work(key=1, prompt_tokens=7, output_tokens=6, priority=5))
    model.submit(Work(key=2, prompt_tokens=7, output_tokens=6, priority=0))
    preempted: list[int] = []
    now_s = 0.0
    while (step := model.start_step(now_s=now_s)) is not None:
        now_s = step.end_s
        preempted += step.preempted
        model.finish_step()
    assert preempted[0] == victim


def test_priority_orders_the_queue_and_takes_no_seat_from_a_running_one() -> None:
    """One seat: an urgent request goes before a queued one, and after the running one."""
    model = make_model(seats=1, policy=SchedulingPolicy.PRIORITY)
    model.submit(Work(key=1, prompt_tokens=10, output_tokens=5, priority=9))
    model.start_step(now_s=0.0)
    model.finish_step()
    model.submit(Work(key=2, prompt_tokens=10, output_tokens=5, priority=5))
    model.submit(Work(key=3, prompt_tokens=10, output_tokens=5, priority=0))
    _, ends = run(model)
    assert sorted(ends, key=lambda key: ends[key]) == [1, 3, 2]


def test_priority_means_nothing_under_fcfs() -> None:
    """vLLM accepts and ignores it."""
    model = make_model(seats=1)
    for key, priority in ((1, 9), (2, 5), (3, 0)):
        model.submit(Work(key=key, prompt_tokens=10, output_tokens=2, priority=priority))
    _, ends = run(model)
    assert sorted(ends, key=lambda key: ends[key]) == [1, 2, 3]


def test_cached_prompt_tokens_take_no_time_but_the_last() -> None:
    """250 tokens of which 250 are cached: one token is computed, in one step."""
    model = make_model()
    model.submit(Work(key=1, prompt_tokens=250, output_tokens=1, cached_tokens=250))
    step = model.start_step(now_s=0.0)
    assert step is not None
    assert step.tokens == 1
    assert model.statistics().kv_blocks_used == 16  # 250 / 16, rounded up


@pytest.mark.parametrize(
    ("policy", "ends"),
    [
        (SchedulingPolicy.FCFS, [0, 1, 2, 3, 4, 5, 6]),
        (SchedulingPolicy.PRIORITY, [0, 1, 6, 2, 3, 4, 5]),
    ],
)
def test_full_cache_evicts_as_often_and_ends_in_the_order_that_vllm_did(
    policy: SchedulingPolicy, ends: list[int]
) -> None:
    """Six answers of 1,900 tokens in 40 blocks of 128, then an urgent one: vLLM 0.32 preempted 6
    times under either policy, and the requests ended in these orders."""
    model = make_model(batched_tokens=256, kv_tokens=40 * 128, block_tokens=128, policy=policy)
    for key in range(6):
        model.submit(Work(key=key, prompt_tokens=20, output_tokens=1900, priority=10))
    finished: list[int] = []
    steps = 0
    while model.start_step(now_s=0.0) is not None:
        finished += model.finish_step().finished
        steps += 1
        if steps == 300:
            model.submit(Work(key=6, prompt_tokens=20, output_tokens=1900, priority=0))
    assert finished == ends
    assert model.statistics().preemptions == 6


def test_long_prompts_run_three_at_a_time_as_in_vllm() -> None:
    """Eight prompts of 1,500 tokens (12 blocks) in 40 blocks: vLLM 0.32 ran 3 at once, without a
    preemption. By the older rule (room for the next chunk is enough) it would be more of both."""
    model = make_model(batched_tokens=256, kv_tokens=40 * 128, block_tokens=128)
    for key in range(8):
        model.submit(Work(key=key, prompt_tokens=1500, output_tokens=100))
    most = 0
    while model.start_step(now_s=0.0) is not None:
        most = max(most, model.statistics().running)
        model.finish_step()
    assert most == 3
    assert model.statistics().preemptions == 0


@pytest.mark.parametrize("when", ["waiting", "in its first step", "decoding"])
def test_aborted_sequence_gives_back_all_it_held(when: str) -> None:
    """Wherever it stood: no block and no seat stays behind, and no token comes."""
    model = make_model()
    model.submit(Work(key=1, prompt_tokens=50, output_tokens=5))
    if when != "waiting":
        model.start_step(now_s=0.0)
    if when == "decoding":
        model.finish_step()
        model.start_step(now_s=0.01)
    assert model.abort(1)
    if when != "waiting":
        assert model.finish_step().finished == ()
    statistics = model.statistics()
    assert (statistics.running, statistics.waiting, statistics.kv_blocks_used) == (0, 0, 0)
    assert model.start_step(now_s=1.0) is None
    assert not model.abort(1)


def test_sequence_that_could_never_fit_is_refused() -> None:
    """Else it would be evicted and recomputed for ever."""
    model = make_model(kv_tokens=160)
    with pytest.raises(ValueError, match="longer than the KV cache"):
        model.submit(Work(key=1, prompt_tokens=150, output_tokens=11))


def test_limits_that_cannot_work_are_refused() -> None:
    """As vLLM does at its start."""
    with pytest.raises(ValueError, match="less than"):
        EngineLimits(max_num_seqs=256, max_num_batched_tokens=128)
