"""Who is served in the place of whom? (A9)

A request may say which other one it waits for. That one is then served in the waiter's class, out
of the waiter's tenant's share and budget, for as long as the waiter is alive; so a batch request
that is held back can't hold back what waits for it. Chains are followed: what the waited-for
request waits for is lifted as well, by the same source. Cycles are harmless: a request is never
its own source, and each source has to be reached anew when a waiter leaves. It does not matter
which of the two arrives first.

Whose requests can be named: those of the same tenant, and those of any tenant where both requests
name the same workflow. So nobody can move a stranger's request, and who moves one pays for it.

A source lifts to its own class, and never above its tenant's ceiling. Following is bounded: a
client may send thousands of requests that wait for each other, and each costs a bounded look.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from giveway_scheduler.entries import Entry
from giveway_scheduler.requests import Request, RequestKey

MOST_FOLLOWED = 256
"""Requests looked at, up or down the chains, for one arrival or end."""

Scope = tuple[str, str, str]
"""("tenant" or "workflow", which, name of the request)."""
NOBODY: tuple[Entry, ...] = ()


class Inheritance:
    """The links between live requests, and by whom each is lifted (`Entry.lifted_by`)."""

    __slots__ = ("_named", "_waiters")

    def __init__(self) -> None:
        self._named: dict[Scope, dict[RequestKey, Entry]] = {}
        self._waiters: dict[Scope, dict[RequestKey, Entry]] = {}

    def join(self, entry: Entry) -> Sequence[Entry]:
        """A request arrives. Returns those whose `lifted_by` changed."""
        request = entry.request
        if not (request.name or request.waits_for):
            return NOBODY
        _put(self._named, _scopes(request, request.name), entry)
        if not (request.waits_for or self._waiters):
            return NOBODY  # the ordinary case: nobody waits for anybody
        _put(self._waiters, _scopes(request, request.waits_for), entry)
        entry.lifted_by = self._best_source(entry)
        changed = [] if entry.lifted_by is None else [entry]
        targets = self._downstream(entry)
        if targets:
            sources = sorted((entry, *self._upstream(entry)), key=_claim)[:2]
            for target in targets:
                best = sources[1] if sources[0] is target and sources[1:] else sources[0]
                if _is_better(best, target):
                    target.lifted_by = best
                    changed.append(target)
        return changed

    def leave(self, entry: Entry) -> Sequence[Entry]:
        """A request is gone. Returns those whose `lifted_by` changed."""
        request = entry.request
        if not (request.name or request.waits_for):
            return NOBODY
        if not request.waits_for:
            _drop(self._named, _scopes(request, request.name), entry.key)
            return NOBODY
        targets = self._downstream(entry)
        sources = {entry, *self._upstream(entry)} if targets else set()
        _drop(self._named, _scopes(request, request.name), entry.key)
        _drop(self._waiters, _scopes(request, request.waits_for), entry.key)
        changed = []
        for target in targets:
            if target.lifted_by in sources:
                source = self._best_source(target)
                if source is not target.lifted_by:
                    target.lifted_by = source
                    changed.append(target)
        return changed

    def refresh(self, entries: Iterable[Entry]) -> list[Entry]:
        """Ranks changed: find every source anew. Returns those whose place may have changed."""
        named = [entry for entry in entries if entry.request.name]
        for entry in named:
            entry.lifted_by = self._best_source(entry)
        return named

    def _best_source(self, target: Entry) -> Entry | None:
        """The highest of all that wait for the target, directly or through others."""
        lifting = [
            source
            for source in self._upstream(target)
            if source.lift_class.rank < target.home_class.rank
        ]
        return min(lifting, key=_claim, default=None)

    def _upstream(self, entry: Entry) -> list[Entry]:
        """All that wait for the entry, directly or through others."""
        return _followed(entry, self._waiters_of)

    def _downstream(self, entry: Entry) -> list[Entry]:
        """All that the entry waits for, directly or through others."""
        return _followed(entry, self._targets_of)

    def _waiters_of(self, entry: Entry) -> Iterator[Entry]:
        for scope in _scopes(entry.request, entry.request.name):
            yield from self._waiters.get(scope, {}).values()

    def _targets_of(self, entry: Entry) -> Iterator[Entry]:
        for scope in _scopes(entry.request, entry.request.waits_for):
            yield from self._named.get(scope, {}).values()


def _followed(start: Entry, next_of: Callable[[Entry], Iterator[Entry]]) -> list[Entry]:
    """What is reached from the start, without it, each once and at most `MOST_FOLLOWED`."""
    seen = {start.key}
    found: list[Entry] = []
    frontier = [start]
    while frontier:
        for each in next_of(frontier.pop()):
            if each.key not in seen:
                seen.add(each.key)
                found.append(each)
                if len(found) == MOST_FOLLOWED:
                    return found
                frontier.append(each)
    return found


def _scopes(request: Request, name: str | None) -> tuple[Scope, ...]:
    """Where the request is known by this name, or looks for one of this name."""
    if not name:
        return ()
    if not request.workflow:
        return (("tenant", request.tenant, name),)
    return ("tenant", request.tenant, name), ("workflow", request.workflow, name)


def _claim(source: Entry) -> tuple[int, int]:
    """Sources with the smaller claim come first: the higher class, then the older request."""
    return source.lift_class.rank, source.order


def _is_better(source: Entry | None, target: Entry) -> bool:
    if source is None or source is target or source.lift_class.rank >= target.home_class.rank:
        return False
    return target.lifted_by is None or _claim(source) < _claim(target.lifted_by)


def _put(
    links: dict[Scope, dict[RequestKey, Entry]], scopes: tuple[Scope, ...], entry: Entry
) -> None:
    for scope in scopes:
        entries = links.get(scope)
        if entries is None:
            links[scope] = {entry.key: entry}
        else:
            entries[entry.key] = entry


def _drop(
    links: dict[Scope, dict[RequestKey, Entry]], scopes: tuple[Scope, ...], key: RequestKey
) -> None:
    for scope in scopes:
        entries = links.get(scope)
        if entries is not None:
            entries.pop(key, None)
            if not entries:
                del links[scope]
