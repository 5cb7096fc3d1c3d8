"""Which class of a policy do chat, code and batch ask for, and what are they owed?"""

from collections.abc import Sequence

from giveway_policy.enumerations import Indicator, Kind
from giveway_policy.resources import ServiceClass, SLOPolicySpec

from giveway_simulation.demo_load import DemoClass, DemoTraffic
from giveway_simulation.traces import Sample, TraceRow, load_sample

UNTOLD_TARGET_S = 1.0
"""For an interactive class whose policy promises no time to first token."""


def demo_traffic(
    spec: SLOPolicySpec, *, chat_trace: Sequence[TraceRow] | None = None
) -> DemoTraffic:
    """Chat is the highest interactive class, code the next one (the same if there is one only),
    batch the first of kind Batch, else the lowest.

    `chat_trace` None: the sample that comes with the package.
    """
    interactive = [each for each in spec.classes if each.kind is Kind.INTERACTIVE]
    batch = [each for each in spec.classes if each.kind is Kind.BATCH]
    first = (interactive or list(spec.classes))[0]
    second = interactive[1] if len(interactive) > 1 else first
    return DemoTraffic(
        chat=_watched("chat", first),
        chat_trace=chat_trace or load_sample(Sample.CHAT),
        code=_watched("code", second),
        code_trace=load_sample(Sample.CODE),
        batch=DemoClass(
            label="batch",
            class_name=(batch[0] if batch else spec.classes[-1]).name,
            first_token_target_s=None,
        ),
        batch_trace=load_sample(Sample.BATCH),
    )


def _watched(label: str, chosen: ServiceClass) -> DemoClass:
    thresholds = [
        objective.threshold_milliseconds
        for objective in chosen.objectives
        if objective.indicator is Indicator.TIME_TO_FIRST_TOKEN
    ]
    milliseconds = next((each for each in thresholds if each is not None), None)
    return DemoClass(
        label=label,
        class_name=chosen.name,
        first_token_target_s=UNTOLD_TARGET_S if milliseconds is None else milliseconds / 1000,
    )
