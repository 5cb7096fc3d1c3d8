"""How does the proxy end without cutting anybody off?

Draining: nothing new is taken (503 `draining`, and the connection is closed), what waits is sent
away with the same answer, and what the engine is working on goes on to its end. It can't be taken
back. The port stays open meanwhile, so that who still comes hears why, and where to go.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from giveway_admission.logs import log_event

if TYPE_CHECKING:
    from giveway_admission.proxying import Proxy

_logger = logging.getLogger(__name__)


class Drain:
    """Draining of one proxy."""

    def __init__(self, proxy: "Proxy") -> None:
        self._proxy = proxy
        self._emptied = asyncio.Event()

    def begin(self) -> None:
        """Take nothing new. May be called again."""
        proxy = self._proxy
        if proxy.draining:
            return
        proxy.draining = True
        proxy.emptied = self._look
        waiting = 0
        for connection in list(proxy.connections):
            exchange = connection.exchange
            if exchange is not None and exchange.drain():
                waiting += 1
        if proxy.tickets is not None:
            proxy.tickets.drain()
        log_event(_logger, logging.INFO, "draining", sent_away=waiting, running=proxy.busy)
        self._look()

    async def drain(self, timeout_s: float | None) -> bool:
        """Begin, and wait until nothing is running. False: `timeout_s` was over before."""
        self.begin()
        try:
            async with asyncio.timeout(timeout_s):
                await self._emptied.wait()
        except TimeoutError:
            return False
        return True

    def _look(self) -> None:
        if not self._proxy.busy:
            self._emptied.set()
