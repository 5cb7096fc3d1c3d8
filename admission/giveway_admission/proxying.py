"""What do all connections of one data port share?

One `Proxy` per process: settings, the policy in force, the scheduler's shell, the engine's
connections, names, metrics. It holds and connects; what is done with a request is in `exchanges`.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from giveway_policy.enumerations import EnginePriority, EngineUsage, Preemption

from giveway_admission.admitting import Admitter
from giveway_admission.arriving import ArrivingBytes
from giveway_admission.engine_pools import EnginePool
from giveway_admission.engine_probing import EngineProbe
from giveway_admission.leaving import LeavingWatch
from giveway_admission.logs import log_event
from giveway_admission.metrics import Metrics
from giveway_admission.recent_decisions import RecentDecisions
from giveway_admission.request_heads import EngineAddress
from giveway_admission.request_ids import RequestIds
from giveway_admission.runtime_policies import RuntimePolicy
from giveway_admission.settings import ClientCredentials, ProxySettings
from giveway_admission.upstreams import Upstream, parse_upstream

if TYPE_CHECKING:
    from giveway_admission.client_connections import ClientConnection
    from giveway_admission.ticket_desk import TicketDesk

_logger = logging.getLogger(__name__)
_REMEMBERED_LINES = 10_000


class Proxy:
    """Everything that belongs to one data port."""

    def __init__(
        self,
        settings: ProxySettings,
        policy: RuntimePolicy,
        *,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
    ) -> None:
        upstream = parse_upstream(settings.upstream)
        self.settings = settings
        self.loop = loop
        self.metrics = metrics
        self.recent_decisions = RecentDecisions()
        self.ids = RequestIds()
        self.pool = EnginePool(upstream, loop=loop, idle_pool_s=settings.engine_idle_pool_s)
        self.admitter = Admitter(policy, loop=loop, recent_decisions=self.recent_decisions)
        self.probe = EngineProbe(upstream, settings, changed=self._engine_changed)
        self.address = _engine_address(settings, upstream)
        self.leaving = LeavingWatch(loop)
        self.tickets: TicketDesk | None = None
        """None: no tickets are given, and nobody's wish for one is heeded."""
        self.connections: set[ClientConnection] = set()
        self.arriving = ArrivingBytes(settings.maximum_arriving_bytes)
        self.connection_limit = settings.maximum_connections
        self.draining = False
        self.unmetered = 0
        """Requests at the engine that hold no seat."""
        self.emptied: Callable[[], None] | None = None
        """Called whenever a request ended. None: nobody wants to know."""
        self.deserted: Callable[[], None] | None = None
        """Called when the last client has gone. None: nobody wants to know."""
        self._told_of_key = False
        self._identity_lines: dict[tuple[str, str], bytes] = {}
        self._use(policy)

    @property
    def engine_up(self) -> bool:
        return self.probe.engine_up

    @property
    def busy(self) -> int:
        """Requests that wait, are at the engine, or are being answered."""
        return self.admitter.live + self.unmetered

    def configure(self, policy: RuntimePolicy) -> None:
        """This policy is in force from now on, for running and waiting requests too.

        Raises `ValueError` if the scheduler can't work with it: then the last one stays.
        """
        self.admitter.configure(policy)
        self.metrics.configure(policy)
        self._use(policy)

    def _use(self, policy: RuntimePolicy) -> None:
        spec = policy.document.spec
        engine = spec.engine
        self.policy = policy
        self.asks_usage = engine.usage is EngineUsage.ALWAYS
        self.forwards_priority = (
            engine.priority is EnginePriority.FORWARD and spec.preemption is not Preemption.NONE
        )
        self.comments_s = float(spec.queue.keep_alive_seconds)
        """Time between two comments to a waiting stream. 0.0: it gets none."""
        forwards = self._forwards_credentials(policy)
        self.address = replace(self.address, forwards_credentials=forwards)
        self.pool.connect_timeout_s = float(engine.connect_timeout_seconds)
        self.pool.idle_timeout_s = float(engine.idle_timeout_seconds)

    def _forwards_credentials(self, policy: RuntimePolicy) -> bool:
        match self.settings.client_credentials:
            case ClientCredentials.AUTO:
                return not any(tenant.key_digests for tenant in policy.document.tenants)
            case ClientCredentials.DROP:
                return False
            case ClientCredentials.FORWARD:
                return True
            case _:
                assert_never(self.settings.client_credentials)

    def identity_lines(self, class_name: str, tenant: str) -> bytes:
        """The header lines that tell a client as whom it was served."""
        lines = self._identity_lines.get((class_name, tenant))
        if lines is None:
            if len(self._identity_lines) >= _REMEMBERED_LINES:
                self._identity_lines.clear()
            lines = b"X-Giveway-Class: %b\r\nX-Giveway-Tenant: %b\r\n" % (
                _header_text(class_name),
                _header_text(tenant),
            )
            self._identity_lines[class_name, tenant] = lines
        return lines

    def engine_suspected(self) -> None:
        """A request found no engine: hold the others until it answers its health check."""
        self.probe.suspect()

    def engine_asks_for_key(self) -> None:
        """The engine said 401: say once what to do, since no client's key reaches it."""
        dropped = not self.address.forwards_credentials
        if dropped and self.settings.engine_api_key is None and not self._told_of_key:
            self._told_of_key = True
            log_event(
                _logger,
                logging.WARNING,
                "engine asks for a key",
                fix="give it with --engine-api-key-file, or --client-credentials forward",
            )

    def _engine_changed(self, up: bool) -> None:
        if up:
            log_event(_logger, logging.INFO, "engine answers")
        else:
            log_event(_logger, logging.WARNING, "engine does not answer", reason=self.probe.reason)
        self.admitter.set_engine_available(up)

    def connection_closed(self, connection: "ClientConnection") -> None:
        self.connections.discard(connection)
        if self.deserted is not None and not self.connections:
            self.deserted()

    def request_ended(self) -> None:
        if self.emptied is not None:
            self.loop.call_soon(self.emptied)  # once the admitter has heard of it too

    def close(self) -> None:
        """Cut everything: clients, engine, timers."""
        self.probe.close()
        for connection in list(self.connections):
            connection.cut()
        self.pool.close()
        self.leaving.close()
        self.admitter.close()


def _engine_address(settings: ProxySettings, upstream: Upstream) -> EngineAddress:
    key = settings.engine_api_key
    return EngineAddress(
        host=upstream.authority.encode("ascii"),
        prefix=upstream.prefix.encode("ascii"),
        authorization=b"" if key is None else b"Authorization: Bearer %b\r\n" % key.encode("ascii"),
    )


def _header_text(text: str) -> bytes:
    """Names from a policy or a trusted header, made harmless for a header's value."""
    return "".join(sign if " " <= sign <= "~" else "?" for sign in text[:256]).encode("ascii")
