"""How does a test keep proxies under load while something else happens?

`Load` sends streams without looking at their answers: so many requests a second (`arriving`), or so
many at once (`keeping`), in one class, until it is told to end.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Self

from tests.support.lines import CHAT, identity
from tests.support.raw_client import ask, chat_body


class Load:
    """Requests to several proxies in turn; an async context manager that ends them all."""

    def __init__(
        self, urls: Sequence[str], *, model: str = "emulated", max_tokens: int = 16
    ) -> None:
        self._urls = list(urls)
        self._body = chat_body(stream=True, max_tokens=max_tokens, model=model)
        self._sources: list[asyncio.Task[None]] = []
        self._running: set[asyncio.Task[None]] = set()
        self._sent = 0

    def arriving(self, class_name: str, *, per_s: float) -> None:
        """Open loop: they come however slow the answers are."""
        self._sources.append(asyncio.create_task(self._arrive(class_name, 1.0 / per_s)))

    def keeping(self, class_name: str, *, at_once: int) -> None:
        """Closed loop: each answer brings the next request."""
        for _ in range(at_once):
            self._sources.append(asyncio.create_task(self._keep(class_name)))

    async def end(self) -> None:
        """No more requests; what is on its way is left."""
        tasks = [*self._sources, *self._running]
        self._sources.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _arrive(self, class_name: str, interval_s: float) -> None:
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while True:
            task = asyncio.create_task(self._send(class_name))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            next_s += interval_s
            await asyncio.sleep(max(0.0, next_s - loop.time()))

    async def _keep(self, class_name: str) -> None:
        while True:
            await self._send(class_name)

    async def _send(self, class_name: str) -> None:
        self._sent += 1
        url = self._urls[self._sent % len(self._urls)]
        with contextlib.suppress(OSError):
            await ask(url, CHAT, self._body, headers=identity(class_name=class_name))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.end()
