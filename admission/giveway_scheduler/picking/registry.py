"""All algorithms by name. A test holds it complete."""

import random
from collections.abc import Callable, Mapping

from giveway_scheduler.picking.picker import Picker, Start
from giveway_scheduler.picking.slo_aware import SLOAware
from giveway_scheduler.settings import Algorithm, Settings

PICKERS: Mapping[Algorithm, Callable[[Settings, Start], Picker]] = {
    Algorithm.SLO_AWARE: SLOAware,
}


def make_picker(settings: Settings, *, now_s: float, generator: random.Random) -> Picker:
    """The picker that the settings ask for."""
    return PICKERS[settings.algorithm](settings, Start(now_s=now_s, generator=generator))
