"""How fast is the error budget of an objective used, and how much is left?

A target of 99 allows 1 of 100 to be bad. The burn rate over a window is the share of bad ones there
divided by that: with 1 the budget is used up exactly at its end, with 14.4 over an hour 2 % of a
month's. Several windows tell a short blip from a slow leak. What is left of the budget is counted
over the longest window: 100 % if nothing was bad, below 0 if more was than is allowed.

https://sre.google/workbook/alerting-on-slos/

Long windows cost Prometheus much and change slowly, so they are asked for rarely, one after the
other, and beside the loop: a Prometheus that takes long for them delays no weight. Here, unlike for
weights, proxies that are gone count: their failures were failures.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from giveway_policy.documents import PolicyName
from giveway_policy.enumerations import Indicator
from giveway_policy.fields import percent_to_ratio
from giveway_policy.resources import Objective, SLOPolicySpec

from giveway_operator.judging import attained
from giveway_operator.observations import Observation

WINDOWS_S: Final = (3600, 21_600, 259_200)
"""1 h, 6 h and 3 d, as the source has them; 5 min is the policy's own window."""
REFRESH_S: Final = 300.0

Key = tuple[str, Indicator, int | None]
"""Class, indicator and threshold: what makes an objective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """Of one objective."""

    rates: tuple[tuple[int, float], ...] = ()
    """(window in seconds, rate), for windows that could be measured."""
    remaining_percent: float | None = None
    """None: the longest window could not be measured."""


class LongObserver(Protocol):
    async def observe_since(
        self, policy: PolicyName, spec: SLOPolicySpec, *, window_s: int
    ) -> tuple[Observation, ...]: ...


@dataclass(slots=True)
class _Kept:
    spec: SLOPolicySpec
    asked_s: float
    asking: asyncio.Task[None]
    observations: dict[int, tuple[Observation, ...]] = field(default_factory=dict)


class Budgets:
    """Observations over the long windows, asked for beside everything else and kept for a while."""

    def __init__(
        self,
        observer: LongObserver,
        *,
        windows_s: Sequence[int] = WINDOWS_S,
        refresh_s: float = REFRESH_S,
    ) -> None:
        self._observer = observer
        self._windows_s = tuple(sorted(windows_s))
        self._refresh_s = refresh_s
        self._kept: dict[PolicyName, _Kept] = {}

    def burns(
        self,
        policy: PolicyName,
        spec: SLOPolicySpec,
        recent: Sequence[Observation],
        *,
        now_s: float,
    ) -> dict[Key, Burn]:
        """By objective, from what is known now. `recent` are the observations of the policy's own
        window. Starts asking for the long ones where they are old; nobody waits for that."""
        kept = self._kept.get(policy)
        if kept is None or kept.spec != spec:
            self.forget(policy)
            kept = self._kept[policy] = _Kept(spec, now_s, self._start(policy, spec))
        elif kept.asking.done() and now_s - kept.asked_s >= self._refresh_s:
            kept.asked_s, kept.asking = now_s, self._start(policy, spec)
        windows = {
            spec.adjustment.window_seconds: tuple(recent),
            **{each: kept.observations.get(each, ()) for each in self._windows_s},
        }
        return {
            (each.name, objective.indicator, objective.threshold_milliseconds): burn(
                each.name, objective, windows
            )
            for each in spec.classes
            for objective in each.objectives
        }

    def forget(self, policy: PolicyName) -> None:
        kept = self._kept.pop(policy, None)
        if kept is not None:
            kept.asking.cancel()

    def _start(self, policy: PolicyName, spec: SLOPolicySpec) -> asyncio.Task[None]:
        return asyncio.create_task(self._ask(policy, spec), name=f"budget of {policy}")

    async def _ask(self, policy: PolicyName, spec: SLOPolicySpec) -> None:
        for window_s in self._windows_s:
            found = await self._observer.observe_since(policy, spec, window_s=window_s)
            kept = self._kept.get(policy)
            if kept is not None and kept.spec == spec:
                kept.observations[window_s] = found


def burn(
    class_name: str, objective: Objective, windows: Mapping[int, Sequence[Observation]]
) -> Burn:
    """Of one objective, from its observations by window."""
    allowed = 1.0 - percent_to_ratio(objective.target_percent)
    if allowed <= 0.0 or not windows:
        return Burn()
    rates = {
        window_s: (1.0 - ratio) / allowed
        for window_s, observations in sorted(windows.items())
        for each in observations
        if each.class_name == class_name and each.is_of(objective)
        if (ratio := attained(each)) is not None
    }
    longest = rates.get(max(windows))
    return Burn(
        rates=tuple(rates.items()),
        remaining_percent=None if longest is None else 100.0 * (1.0 - longest),
    )
