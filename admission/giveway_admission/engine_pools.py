"""Over which connection does a request go to the engine?

Connections that are free are kept for a while, the latest used first, so that few are open when
little is going on. There is no upper limit here: how many requests are at the engine at once is the
scheduler's decision alone.

A free connection is not used once it is older than the idle time, which is set below the engine's
own. That leaves the case that the engine closes just as we send: then the request goes again, over
a new connection, if nothing of an answer was seen and its body is still there.
"""

import asyncio
import logging
import ssl
import time
from dataclasses import dataclass

from giveway_admission.deadlines import Deadline
from giveway_admission.engine_connections import EngineConnection, EngineFault, Receiver
from giveway_admission.logs import log_event
from giveway_admission.upstreams import Upstream

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatistics:
    """Connections to the engine now."""

    open: int
    idle: int
    connecting: int


class EnginePool:
    """All connections to the engine."""

    def __init__(
        self, upstream: Upstream, *, loop: asyncio.AbstractEventLoop, idle_pool_s: float
    ) -> None:
        self._upstream = upstream
        self._loop = loop
        self._idle_pool_s = idle_pool_s
        self._tls = ssl.create_default_context() if upstream.secure else None
        self._idle: list[EngineConnection] = []
        self._open: set[EngineConnection] = set()
        self._dials: dict[Receiver, asyncio.Task[None]] = {}
        self._sweep = Deadline(loop, self._close_old)
        self.connect_timeout_s = 5.0
        self.idle_timeout_s = 600.0

    def send(self, receiver: Receiver, *, fresh: bool = False) -> None:
        """Put the request of `receiver`, now or once a connection is open.

        `fresh`: over a new one, since one from the pool has just failed it.
        """
        if not fresh:
            oldest_s = time.monotonic() - self._idle_pool_s
            while self._idle:
                connection = self._idle.pop()
                if connection.is_usable and connection.idle_since_s >= oldest_s:
                    connection.send(receiver)
                    return
                connection.close()
        task = self._loop.create_task(self._dial(receiver))
        self._dials[receiver] = task

    def give_up(self, receiver: Receiver) -> None:
        """`receiver` does not want a connection any more for which it still waits."""
        task = self._dials.pop(receiver, None)
        if task is not None:
            task.cancel()

    async def _dial(self, receiver: Receiver) -> None:
        upstream = self._upstream
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                _, connection = await self._loop.create_connection(
                    lambda: EngineConnection(self, self._loop),
                    upstream.host,
                    upstream.port,
                    ssl=self._tls,
                )
        except (OSError, UnicodeError):  # refused, not resolved, TLS faults, TimeoutError
            if self._dials.pop(receiver, None) is not None:
                receiver.engine_failed(EngineFault.UNREACHABLE)
            return
        self._open.add(connection)
        if self._dials.pop(receiver, None) is None:
            connection.close()
            return
        if not connection.is_usable:
            self._open.discard(connection)
            receiver.engine_failed(EngineFault.UNREACHABLE)
            return
        try:
            connection.send(receiver)
        except Exception as error:  # nobody awaits this task: the request must hear of it
            log_event(_logger, logging.ERROR, "request not sent", error=error)
            connection.abort()
            receiver.engine_failed(EngineFault.LOST)

    def put(self, connection: EngineConnection) -> None:
        """`connection` has served a request and is free."""
        connection.idle_since_s = time.monotonic()
        self._idle.append(connection)
        if len(self._idle) == 1:
            self._sweep.set_in(self._idle_pool_s)

    def forget(self, connection: EngineConnection) -> None:
        """`connection` is closed."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _close_old(self) -> None:
        oldest_s = time.monotonic() - self._idle_pool_s
        keep = [connection for connection in self._idle if connection.idle_since_s > oldest_s]
        for connection in self._idle:
            if connection.idle_since_s <= oldest_s:
                connection.close()
        self._idle = keep
        if keep:
            self._sweep.set_at(
                min(connection.idle_since_s for connection in keep) + self._idle_pool_s
            )

    def close(self) -> None:
        """End all connections, also those in use."""
        self._sweep.close()
        for task in self._dials.values():
            task.cancel()
        self._dials.clear()
        for connection in list(self._open):
            connection.abort()
        self._idle.clear()

    def statistics(self) -> PoolStatistics:
        return PoolStatistics(
            open=len(self._open), idle=len(self._idle), connecting=len(self._dials)
        )
