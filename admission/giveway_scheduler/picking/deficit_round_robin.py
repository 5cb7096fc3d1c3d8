"""DeficitRoundRobin (H11): the contracted ratio, kept in every window.

Each class has a counter `served / weight`. With `V` the mean of the counters of the classes that
could go, weighted by their weights, `weight x (V - counter)` is the class's deficit: what it is
owed of all that went. Next is the class with the least counter, that is with the largest deficit
for its weight.

With equal costs the order is periodic, so any window as long as the period holds the exact ratio:
70 of 100 for weights 70/25/5, in whichever 100. With unequal costs two classes that always have
work differ in `served / weight` by at most one largest request of each.

Changed from Shreedhar and Varghese, "Efficient fair queuing using deficit round robin" (1996,
https://doi.org/10.1109/90.502236): there a class spends its whole quantum in one visit, so that a
batch class may hold an interactive one up for a quantum; here a visit lasts one request. Costs
are not known in advance: an estimate counts at dispatch and is corrected at the end. As there, a
class that has nothing to send loses what it was owed, and its share goes to the others (H7).

The unit is tokens (mend 3), or requests where the contract counts those.
"""

from collections.abc import Sequence

from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.entries import Entry
from giveway_scheduler.picking.picker import Picker, Start
from giveway_scheduler.picking.weighing import WeightedShares
from giveway_scheduler.settings import Settings, ShareUnit


class DeficitRoundRobin(Picker):
    """Serves classes exactly by weight."""

    def __init__(self, settings: Settings, start: Start) -> None:  # noqa: ARG002
        self._shares = WeightedShares(by_tokens=settings.share_unit is ShareUnit.TOKENS)

    def configure(self, settings: Settings, classes: Sequence[ServiceClass]) -> None:
        by_tokens = settings.share_unit is ShareUnit.TOKENS
        if by_tokens is not self._shares.by_tokens:
            self._shares = WeightedShares(by_tokens=by_tokens)
        self._shares.configure(classes)

    def choose(self, heads: Sequence[Entry], *, now_s: float) -> Entry:  # noqa: ARG002 - no ageing
        return self._shares.least_served(heads)

    def charge(
        self,
        service_class: ServiceClass,
        *,
        requests: int,
        tokens: float,
        now_s: float,  # noqa: ARG002 - deficits do not decay
    ) -> None:
        self._shares.charge(service_class, requests=requests, tokens=tokens)
