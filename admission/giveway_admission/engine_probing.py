"""Is the engine there?

Asked once at the start, then every few seconds, and as soon as a request found nobody. While it is
not there, it is asked in growing steps from a tenth of a second to one second, so that what waits
is served at most that much after it is back.

Everything but a server error counts as being there: an engine without `/health` says 404. A busy
vLLM may take seconds for this answer, so silence alone never makes an engine that was there count
as gone; a refused connection or a server error does.
"""

import asyncio
import os
import ssl
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from giveway_admission.settings import ProxySettings
from giveway_admission.upstreams import Upstream

_TIMEOUT_S = 5.0


class Health(Enum):
    """What an engine said."""

    ANSWERS = auto()
    SILENT = auto()
    GONE = auto()


class Finding(NamedTuple):
    """What asking gave."""

    health: Health
    reason: str = ""
    """Why it is not there, for a person. Empty: it is."""


async def ask_health(upstream: Upstream, *, headers: bytes = b"") -> Finding:
    """Ask once. Never raises for what the engine does."""
    tls = ssl.create_default_context() if upstream.secure else None
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(upstream.host, upstream.port, ssl=tls)
            writer.write(
                b"GET %b/health HTTP/1.1\r\nHost: %b\r\n%bConnection: close\r\n\r\n"
                % (upstream.prefix.encode(), upstream.authority.encode(), headers)
            )
            line = await reader.readuntil(b"\r\n")
    except TimeoutError:
        return Finding(Health.SILENT, f"no answer within {_TIMEOUT_S:g} s")
    except (OSError, UnicodeError) as error:
        return Finding(Health.GONE, explain_os_error(error))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return Finding(Health.GONE, "it closed the connection, or does not speak HTTP/1")
    finally:
        if writer is not None:
            writer.transport.abort()
    version, _, rest = line.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
        return Finding(Health.GONE, "it does not speak HTTP/1")
    if int(rest[:3]) >= 500:
        return Finding(Health.GONE, f"it says {int(rest[:3])} to GET {upstream.prefix}/health")
    return Finding(Health.ANSWERS)


def explain_os_error(error: Exception) -> str:
    """The system's words, without what the event loop puts around them."""
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0 and not isinstance(error, ssl.SSLError):
        return os.strerror(number)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class EngineProbe:
    """Knows whether the engine is there, and tells `changed` when that changes.

    Until the first answer it counts as not there, which whoever is told has to assume himself.
    """

    def __init__(
        self, upstream: Upstream, settings: ProxySettings, *, changed: Callable[[bool], None]
    ) -> None:
        self._upstream = upstream
        self._settings = settings
        self._changed = changed
        self._up = False
        self._asked = False
        self.reason = ""
        """Why the engine is not there, for a person. Empty: it is."""
        self._suspected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def engine_up(self) -> bool:
        return self._up

    def start(self) -> None:
        """Ask at once, and go on asking. Until it answers requests wait."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="engine-probe")

    def suspect(self) -> None:
        """A request found no engine: it counts as not there until it answers again."""
        if self._up:
            self._up = False
            self.reason = "a request could not reach it"
            self._suspected.set()
            self._changed(False)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        wait_s = self._settings.probe_first_s
        while True:
            health, reason = await ask_health(self._upstream)
            if health is Health.ANSWERS and not self._suspected.is_set():
                wait_s = self._settings.probe_first_s
                self._set_up(True, "")
                await self._pause(self._settings.probe_interval_s)
            elif health is Health.SILENT and self._up:
                await self._pause(self._settings.probe_interval_s)
            else:
                self._suspected.clear()
                self._set_up(False, reason or "a request could not reach it")
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, self._settings.probe_longest_s)

    async def _pause(self, pause_s: float) -> None:
        """Wait, unless somebody suspects the engine meanwhile."""
        try:
            async with asyncio.timeout(pause_s):
                await self._suspected.wait()
        except TimeoutError:
            return
        self._suspected.clear()
        await asyncio.sleep(self._settings.probe_first_s)

    def _set_up(self, up: bool, reason: str) -> None:
        self.reason = reason
        if up is not self._up or not self._asked:
            self._asked = True
            self._up = up
            self._changed(up)
