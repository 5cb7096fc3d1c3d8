"""All algorithms by name. A test holds it complete."""

import random
from collections.abc import Callable, Mapping

from giveway_scheduler.picking.deficit_round_robin import DeficitRoundRobin
from giveway_scheduler.picking.dynamic_aging import DynamicAging
from giveway_scheduler.picking.interactive_first import InteractiveFirst
from giveway_scheduler.picking.picker import Picker, Start
from giveway_scheduler.picking.slo_aware import SLOAware
from giveway_scheduler.picking.weighted_random import WeightedRandom
from giveway_scheduler.settings import Algorithm, Settings

PICKERS: Mapping[Algorithm, Callable[[Settings, Start], Picker]] = {
    Algorithm.WEIGHTED_RANDOM: WeightedRandom,
    Algorithm.DEFICIT_ROUND_ROBIN: DeficitRoundRobin,
    Algorithm.DYNAMIC_AGING: DynamicAging,
    Algorithm.INTERACTIVE_FIRST: InteractiveFirst,
    Algorithm.SLO_AWARE: SLOAware,
}


def make_picker(settings: Settings, *, now_s: float, generator: random.Random) -> Picker:
    """The picker that the settings ask for."""
    return PICKERS[settings.algorithm](settings, Start(now_s=now_s, generator=generator))
