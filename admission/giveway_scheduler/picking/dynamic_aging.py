"""DynamicAging (A1, A2): a request's claim grows while it waits.

    score(t) = base + per_ms x waited milliseconds          highest score first

Base and growth belong to the class (published: VIP 100 and 0.05, normal 20 and 0.02, batch 1 and
0.005). One heap ordered by score would go stale, since scores grow at different speeds (mend 1).
But two requests of one class never overtake each other, so each class is a plain queue in order
of arrival, and comparing the heads at the moment of the pick is exact and costs one look per
class.

Bound (mend 2). The oldest request of a class, having waited `w` ms, is next as soon as for every
other class, whose oldest has waited `v` ms,

    w > (other base - base) / growth + (other growth / growth) x v

So a normal one passes *newly arrived* VIPs (v = 0) after (100 - 20) / 0.02 = 4,000 ms, and a
batch one after (100 - 1) / 0.005 = 19,800 ms. It never passes a VIP that has waited as long as
itself, for that one grew faster. If VIPs wait at most `v`, batch waits at most 19.8 s + 10 v
while its own queue is served as fast as it fills. That is finite only while the higher classes
leave some capacity: where VIPs alone bring more than the engine serves, `v` grows without end,
and lower classes starve however long they wait. Ageing does not mend that; the boost (H10) or a
limit on the class does.
"""

from collections.abc import Sequence

from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.entries import Entry
from giveway_scheduler.picking.picker import Picker, Start
from giveway_scheduler.queues import Order
from giveway_scheduler.settings import Settings

MS_PER_S = 1000.0


class DynamicAging(Picker):
    """Picks the highest score. It keeps no state."""

    def __init__(self, settings: Settings, start: Start) -> None:
        """Scores need nothing but the classes' own settings."""

    def order_of(self, service_class: ServiceClass) -> Order:  # noqa: ARG002 - all alike
        return Order.ARRIVAL

    def choose(self, heads: Sequence[Entry], *, now_s: float) -> Entry:
        return max(heads, key=lambda head: score(head, now_s=now_s))

    def charge(
        self, service_class: ServiceClass, *, requests: int, tokens: float, now_s: float
    ) -> None:
        """Ageing counts waiting, not service."""


def score(entry: Entry, *, now_s: float) -> float:
    """What the entry's claim is now."""
    settings = entry.service_class.settings
    return settings.aging_base + settings.aging_per_ms * (now_s - entry.offered_s) * MS_PER_S
