"""Which of several operators leads, and in which epoch?

A Lease of our own (`coordination.k8s.io`), held and renewed. Its `leaseTransitions` is the epoch of
all documents: who takes it over raises it, so what a former leader still writes is older. A Lease
that is made anew begins with the minutes since 1970, so that the epoch does not fall even if
somebody deleted the last one.

Clocks of other machines are not trusted: a Lease has expired when this process has not seen it
change for its duration. Our own is trusted for `trust_s` after a renewal was *sent*, which is less
than what others wait: between the two lies the longest time a write that passed the guard may take.
"""

import logging
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from giveway_operator.kube_client import (
    LEASES,
    ConflictError,
    KubeClient,
    KubeError,
    NotFoundError,
    Object,
)

LEASE_NAME: Final = "giveway-operator"
_log = logging.getLogger(__name__)


class NotLeadingError(Exception):
    """Another operator may lead by now: nothing may be written any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    namespace: str
    name: str = LEASE_NAME
    duration_s: int = 20
    """How long others wait for a leader that is silent. With `retry_s` this is the takeover."""
    renew_s: float = 8.0
    """Fewer than ten writes a minute."""
    retry_s: float = 3.0
    """How often one that does not lead looks, and one that leads tries again: two more attempts
    while the last renewal is trusted."""
    trust_s: float = 15.0
    """How long a renewal is trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatistics:
    identity: str
    leading: bool
    holder: str
    """Empty: nobody, or not known. Also our own, if we hold it and could not renew it."""
    read_ago_s: float | None
    """When the Lease was last read. None: never."""
    epoch: int


class Leadership:
    """Take the Lease if it is free, renew it, give it back. `tick` does one step."""

    def __init__(
        self,
        kube: KubeClient,
        settings: LeaseSettings,
        *,
        clock: Callable[[], float],
        now: Callable[[], str],
        minutes: Callable[[], int],
        identity: str | None = None,
    ) -> None:
        """`clock` is monotonic; `now` is RFC 3339 with microseconds; `minutes` since 1970."""
        self._kube = kube
        self._settings = settings
        self._clock = clock
        self._now = now
        self._minutes = minutes
        self.identity = identity or f"giveway-operator-{uuid.uuid4()}"
        """Another one in each life of a process, so that each life has its own epoch."""
        self._lease: Object | None = None
        self._seen: tuple[object, ...] = ()
        self._seen_s = 0.0
        self._trusted_until_s = -math.inf
        self._read_s: float | None = None
        self._epoch = 0

    @property
    def leading(self) -> bool:
        return self._clock() < self._trusted_until_s

    @property
    def epoch(self) -> int:
        """Of the last time we led."""
        return self._epoch

    def guard(self) -> None:
        """Raises `NotLeadingError` unless the Lease is ours, and fresh."""
        if not self.leading:
            raise NotLeadingError("the Lease is not ours, or was not renewed in time")

    async def tick(self) -> float:
        """One look and, if it is for us, one write. Returns after how long to do it again.

        Raises nothing but cancellation: without an answer trust runs out by itself.
        """
        try:
            renewed = await self._tick()
        except KubeError as error:
            _log.warning("the Lease cannot be held: %s", error)
            renewed = False
        return self._settings.renew_s if renewed else self._settings.retry_s

    async def release(self) -> None:
        """Let another one take over at once. For a clean stop; raises nothing."""
        if not self.leading or self._lease is None:
            return
        self._trusted_until_s = -math.inf
        spec = {**self._lease["spec"], "holderIdentity": "", "renewTime": self._now()}
        try:
            await self._kube.replace(LEASES, {**self._lease, "spec": spec})
        except KubeError as error:
            _log.warning("the Lease cannot be given back: %s", error)

    async def _tick(self) -> bool:
        """Whether it is ours, and renewed."""
        sent_s = self._clock()
        settings = self._settings
        try:
            lease = await self._kube.read(LEASES, settings.name, namespace=settings.namespace)
        except NotFoundError:
            return await self._create(sent_s)
        self._look_at(lease)
        spec = _spec(lease)
        holder = spec.get("holderIdentity") or ""
        if holder == self.identity:
            return await self._write(lease, int(spec.get("leaseTransitions") or 0), sent_s)
        self._trusted_until_s = -math.inf
        duration_s = float(spec.get("leaseDurationSeconds") or settings.duration_s)
        if not holder or self._clock() - self._seen_s >= duration_s:
            return await self._write(lease, int(spec.get("leaseTransitions") or 0) + 1, sent_s)
        return False

    def _look_at(self, lease: Object) -> None:
        spec = _spec(lease)
        seen = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_s = seen, self._clock()
        self._lease = lease
        self._read_s = self._clock()

    async def _create(self, sent_s: float) -> bool:
        settings = self._settings
        lease = {
            "metadata": {"name": settings.name, "namespace": settings.namespace},
            "spec": self._held(self._minutes()),
        }
        try:
            created = await self._kube.create(LEASES, lease)
        except ConflictError:
            return False  # another one was faster
        self._take(created, sent_s)
        return True

    async def _write(self, lease: Object, epoch: int, sent_s: float) -> bool:
        spec = {**_spec(lease), **self._held(epoch)}
        if _spec(lease).get("holderIdentity") == self.identity:
            spec["acquireTime"] = _spec(lease).get("acquireTime") or spec["acquireTime"]
        try:
            written = await self._kube.replace(LEASES, {**lease, "spec": spec})
        except ConflictError:
            return False  # another one was faster; if it was ours, trust runs out unless renewed
        self._take(written, sent_s)
        return True

    def _held(self, epoch: int) -> dict[str, Any]:
        now = self._now()
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._settings.duration_s,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": epoch,
        }

    def _take(self, lease: Object, sent_s: float) -> None:
        self._look_at(lease)
        self._epoch = int(_spec(lease).get("leaseTransitions") or 0)
        if not self.leading:
            _log.info("this operator leads now, in epoch %d", self._epoch)
        self._trusted_until_s = sent_s + self._settings.trust_s

    def statistics(self) -> LeaseStatistics:
        holder = _spec(self._lease).get("holderIdentity") or "" if self._lease else ""
        return LeaseStatistics(
            identity=self.identity,
            leading=self.leading,
            holder=holder,
            read_ago_s=None if self._read_s is None else self._clock() - self._read_s,
            epoch=self._epoch,
        )

    def standby_fault(self) -> str:
        """Why it does not even stand by for a leader. Empty: it does."""
        found = self.statistics()
        if found.read_ago_s is None:
            return "the Lease could not be read yet"
        if found.read_ago_s > self._settings.duration_s:
            return f"the Lease could not be read for {found.read_ago_s:.0f} s"
        if found.holder in ("", self.identity):
            return "nobody leads"
        return ""


def _spec(lease: Object) -> dict[str, Any]:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}
