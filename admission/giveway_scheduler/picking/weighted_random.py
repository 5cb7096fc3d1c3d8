"""WeightedRandom (H6): a lottery among the classes, tickets by weight.

Each pick draws one of the classes that may go, with its weight renormalised over them; a class that
has nothing to send leaves its share to the others (H7). If no class that may go has any weight, the
highest goes.

Published, weights count requests (`ShareUnit.REQUESTS`): a 30,000-token prompt weighs as much as
a 10-token one. In tokens (mend 3, the default), a class draws with `weight / cost`, its cost
being its recent mean tokens a request: estimates at first, replaced by what was really used. Then
expected tokens a draw are in proportion to the weights, whatever the sizes.

Bound: a lottery has none in a window. Of 100 equal draws, a 70 % class gets 70 with a standard
deviation of sqrt(100 x 0.7 x 0.3) = 4.6. Who needs the ratio kept takes DeficitRoundRobin.
"""

from collections.abc import Sequence

from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.entries import Entry
from giveway_scheduler.picking.picker import Picker, Start
from giveway_scheduler.settings import Settings, ShareUnit

RECENT_REQUESTS = 200.0
"""Over about how many requests of a class its mean cost looks back: long enough that one huge
prompt moves it little, short enough to follow a change of clients in a minute."""
LEAST_COST_TOKENS = 1.0


class WeightedRandom(Picker):
    """Draws classes by weight."""

    def __init__(self, settings: Settings, start: Start) -> None:
        self._random = start.generator.random
        self._by_tokens = settings.share_unit is ShareUnit.TOKENS
        self._costs: dict[ServiceClass, MeanCost] = {}

    def configure(self, settings: Settings, classes: Sequence[ServiceClass]) -> None:
        self._by_tokens = settings.share_unit is ShareUnit.TOKENS
        self._costs = {each: self._costs.get(each) or MeanCost() for each in classes}

    def choose(self, heads: Sequence[Entry], *, now_s: float) -> Entry:  # noqa: ARG002 - no ageing
        if len(heads) == 1:
            return heads[0]
        tickets = [self._tickets(head) for head in heads]
        drawn = self._random() * sum(tickets)
        for head, count in zip(heads, tickets, strict=True):
            drawn -= count
            if drawn < 0.0:
                return head
        return heads[0]

    def charge(
        self,
        service_class: ServiceClass,
        *,
        requests: int,
        tokens: float,
        now_s: float,  # noqa: ARG002 - counts requests, not time
    ) -> None:
        cost = self._costs.get(service_class)
        if cost is not None:
            cost.add(requests, tokens)

    def _tickets(self, head: Entry) -> float:
        weight = head.service_class.settings.weight
        if not self._by_tokens:
            return weight
        return weight / self._costs[head.service_class].mean_tokens(head)


class MeanCost:
    """Recent tokens per request of one class; older requests fade as newer ones come."""

    __slots__ = ("_requests", "_tokens")

    def __init__(self) -> None:
        self._requests = 0.0
        self._tokens = 0.0

    def add(self, requests: int, tokens: float) -> None:
        """Count requests with their tokens, or correct (0 or fewer requests)."""
        if requests > 0:
            fading = 1.0 - 1.0 / RECENT_REQUESTS
            self._requests *= fading
            self._tokens *= fading
        self._requests = max(0.0, self._requests + requests)
        self._tokens = max(0.0, self._tokens + tokens)

    def mean_tokens(self, head: Entry) -> float:
        """Tokens per request; of a class without a past, those that are reserved for its head."""
        if self._requests < 1.0:
            return max(LEAST_COST_TOKENS, head.cost_tokens)
        return max(LEAST_COST_TOKENS, self._tokens / self._requests)
