"""What is counted per tenant, and in how many series at most?

A series begins with the first request of its kind, but for each named tenant's `completed`, which
exists from the start: the full product of tenants, classes and outcomes would be mostly zeros.
Beyond `MAXIMUM_TENANT_SERIES` everything is counted for `other`.
"""

from collections.abc import Callable, Iterable, Iterator

from giveway_admission import metric_names as names
from giveway_admission.class_counts import Counter
from giveway_admission.outcomes import Outcome
from giveway_admission.tenant_labels import OTHER, TenantLabels

MAXIMUM_TENANT_SERIES = 8000
"""Of `giveway_tenant_requests_total`: about 800 kB of text."""


class TenantCounts:
    """Everything that is counted for one tenant that has a label."""

    __slots__ = ("requests", "tokens")

    def __init__(self, label: str) -> None:
        self.requests: dict[tuple[str, Outcome], Counter] = {}
        self.tokens = tuple(
            Counter(names.TENANT_TOKENS.series(label, kind)) for kind in names.TOKEN_KINDS
        )


class TenantCounting:
    """All tenants."""

    __slots__ = ("_counts", "_labels", "_other", "_series")

    def __init__(self, seen_tenants: int, *, clock: Callable[[], float]) -> None:
        self._labels = TenantLabels(seen_tenants, released=self._release, clock=clock)
        self._other = TenantCounts(OTHER)
        self._counts: dict[str, TenantCounts] = {OTHER: self._other}
        self._series = 0

    def count(self, tenant: str, class_name: str, *, outcome: Outcome) -> TenantCounts:
        """One request ended. Returns where its tokens are counted."""
        label = self._labels.label(tenant)
        owner = self._counts.get(label) or self._add(label)
        counter = owner.requests.get((class_name, outcome))
        if counter is None:
            counter = self._counter(label, class_name, outcome)
        counter.value += 1
        return owner

    def configure(self, named: Iterable[str], class_names: Iterable[str]) -> None:
        self._labels.configure(named)
        wanted = tuple(class_names)
        for tenant in (*self._labels.named(), OTHER):
            self._add(tenant)
            for name in wanted:
                self._counter(tenant, name, Outcome.COMPLETED)

    def forget_class(self, name: str) -> None:
        for owner in self._counts.values():
            for key in [key for key in owner.requests if key[0] == name]:
                del owner.requests[key]
                self._series -= 1

    def shown(self, tenant: str) -> str:
        return self._labels.shown(tenant)

    def requests(self) -> Iterator[Counter]:
        return (counter for owner in self._counts.values() for counter in owner.requests.values())

    def tokens(self) -> Iterator[Counter]:
        return (counter for owner in self._counts.values() for counter in owner.tokens)

    def _add(self, label: str) -> TenantCounts:
        owner = self._counts.get(label)
        if owner is None:
            owner = self._counts[label] = TenantCounts(label)
        return owner

    def _counter(self, label: str, class_name: str, outcome: Outcome) -> Counter:
        owner = self._counts[label]
        if owner is not self._other and self._series >= MAXIMUM_TENANT_SERIES:
            label, owner = OTHER, self._other
        counter = owner.requests.get((class_name, outcome))
        if counter is None:
            counter = Counter(names.TENANT_REQUESTS.series(label, class_name, outcome))
            owner.requests[class_name, outcome] = counter
            self._series += 1
        return counter

    def _release(self, label: str) -> None:
        owner = self._counts.pop(label, None)
        if owner is not None:
            self._series -= len(owner.requests)
