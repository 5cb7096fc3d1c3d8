"""How much of a mix of requests can an engine do per second when it never runs dry?

The model is run in its own time, kept saturated, and what it computed is counted; a warm-up, in
which all seats are still at their prompts, is left out.
"""

from collections.abc import Iterator

from giveway_simulation.demo_load import work_of
from giveway_simulation.engine_model import EngineLimits, EngineModel, Work
from giveway_simulation.engine_pods import Pod
from giveway_simulation.load_records import PlannedRequest

_WARM_UP_S = 20.0
_MEASURED_S = 60.0
_QUEUED = 8


def model_capacity(pod: Pod, limits: EngineLimits, requests: Iterator[PlannedRequest]) -> float:
    """Work per second (as `work_of` counts) of the pod under this mix."""
    model = EngineModel(pod, limits)
    key = 0
    now_s = 0.0
    start_s: float | None = None
    start_work = 0.0

    def done() -> float:
        statistics = model.statistics()
        return work_of(statistics.prompt_tokens, statistics.generation_tokens)

    while now_s < _WARM_UP_S + _MEASURED_S:
        while model.statistics().waiting < _QUEUED:
            planned = next(requests)
            key += 1
            model.submit(
                Work(
                    key=key,
                    prompt_tokens=planned.prompt_tokens,
                    output_tokens=planned.output_tokens,
                )
            )
        step = model.start_step(now_s=now_s)
        if step is None:
            raise ValueError("the mix does not fit this engine")
        now_s = step.end_s
        model.finish_step()
        if start_s is None and now_s >= _WARM_UP_S:
            start_s, start_work = now_s, done()
    assert start_s is not None
    return (done() - start_work) / (now_s - start_s)
