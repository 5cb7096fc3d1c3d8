"""Which tenants have a label of their own?

A tenant's name may have been chosen by a client, so it must neither fill the memory of whoever
scrapes (C24) nor show what is private (G04). Three rules:

- a tenant that the policy names has a label, always (up to `MAXIMUM_NAMED` of them, and whatever it
  is called: naming it there is the permission);
- others get one of `places` labels in the order in which they come; one that was silent for
  `IDLE_S` gives its place up. Its series end and nothing of them is added to `other`, so that no
  rate jumps; if it comes back it starts at 0, which is an ordinary counter reset;
- a name that looks like an address, a key or a token is never shown: it is counted in `other`.
"""

import re
from collections.abc import Callable, Iterable

OTHER = "other"
HIDDEN = "(hidden)"
MAXIMUM_NAMED = 500
IDLE_S = 600.0

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,62}")
_LIKE_A_SECRET = re.compile(
    r"(?i:sk|pk|key|token|bearer|basic|ghp|hf|xox[a-z])[-_:/.][A-Za-z0-9._-]{8,}"  # key with prefix
    r"|eyJ[A-Za-z0-9._-]{8,}"  # JWT
    r"|(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9]{32,}"  # long random word
)


def is_presentable(tenant: str) -> bool:
    """False: the name may be an address, a key or a token, or is no name at all."""
    return _PLAIN.fullmatch(tenant) is not None and _LIKE_A_SECRET.fullmatch(tenant) is None


def shown_tenant(tenant: str) -> str:
    """A name that no policy vouches for, as a person may see it."""
    return tenant if not tenant or is_presentable(tenant) else HIDDEN


class TenantLabels:
    """From tenant to label. `released` is called with a label whose series shall end."""

    __slots__ = ("_clock", "_named", "_places", "_released", "_seen")

    def __init__(
        self,
        places: int,
        *,
        released: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._places = places
        self._released = released
        self._clock = clock
        self._named: frozenset[str] = frozenset()
        self._seen: dict[str, float] = {}  # tenant -> when it was last seen; oldest first

    def configure(self, named: Iterable[str]) -> None:
        """Tenants that are named no longer compete for a place like any other."""
        before, self._named = self._named, frozenset(sorted(set(named))[:MAXIMUM_NAMED])
        for tenant in self._named:
            self._seen.pop(tenant, None)
        for tenant in sorted(before - self._named):
            if self.label(tenant) == OTHER:
                self._released(tenant)

    def named(self) -> tuple[str, ...]:
        return tuple(sorted(self._named))

    def shown(self, tenant: str) -> str:
        """The name as the admin page may show it."""
        return tenant if tenant in self._named else shown_tenant(tenant)

    def label(self, tenant: str) -> str:
        """Label of a tenant that has just done something."""
        if tenant in self._named:
            return tenant
        seen = self._seen
        if seen.pop(tenant, None) is None and not self._take_place(tenant):
            return OTHER
        seen[tenant] = self._clock()
        return tenant

    def _take_place(self, tenant: str) -> bool:
        if self._places <= 0 or tenant == OTHER or not is_presentable(tenant):
            return False
        if len(self._seen) < self._places:
            return True
        quietest = next(iter(self._seen))
        if self._clock() - self._seen[quietest] < IDLE_S:
            return False
        del self._seen[quietest]
        self._released(quietest)
        return True
