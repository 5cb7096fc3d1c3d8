"""How does a test see in which order waiting requests reach the engine?

The seats are taken by `holders`, requests are queued in a known order (`Line`), then the seats come
free and the scripted engine tells who arrived (`arrivals`).
"""

import asyncio
from collections.abc import Sequence

from tests.support.processes import Proxy
from tests.support.raw_client import Answer, ask, chat_body
from tests.support.scraping import queue_has
from tests.support.scripted_engine import ScriptedEngine
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
WAITS_S = 600.0
"""Patience of who holds a seat or waits: a test lets them go, however slow the machine."""


def named(name: str, *, stream: bool = False, max_tokens: int | None = 16) -> dict[str, object]:
    """A chat request that can be told from others at the engine."""
    return chat_body(text=name, stream=stream, max_tokens=max_tokens)


def identity(tenant: str = "", class_name: str = "") -> dict[str, str]:
    """Headers that say who asks, and in which class."""
    given = {"X-Giveway-Tenant": tenant, "X-Giveway-Class": class_name}
    return {name: value for name, value in given.items() if value}


class Line:
    """Requests that wait in the proxy, queued one after the other so that their order is sure."""

    def __init__(self, proxy: Proxy, *, waiting: int = 0) -> None:
        self._proxy = proxy
        self._waiting = waiting
        self.tasks: list[asyncio.Task[Answer]] = []

    async def add(
        self, name: str, *, tenant: str = "", class_name: str = "", max_tokens: int = 16
    ) -> None:
        """Send a request; it waits when this returns."""
        await self.add_all([name], tenant=tenant, class_name=class_name, max_tokens=max_tokens)

    async def add_all(
        self,
        all_names: Sequence[str],
        *,
        tenant: str = "",
        class_name: str = "",
        max_tokens: int = 16,
    ) -> None:
        """Send some whose order among themselves does not matter."""
        headers = identity(tenant, class_name)
        for name in all_names:
            body = named(name, max_tokens=max_tokens)
            sent = ask(self._proxy.url, CHAT, body, headers=headers, patience_s=WAITS_S)
            self.tasks.append(asyncio.create_task(sent))
        self._waiting += len(all_names)
        await until(
            lambda: queue_has(self._proxy.admin_url, self._waiting), what=f"{all_names[-1]} waits"
        )

    async def answers(self) -> list[Answer]:
        return list(await asyncio.gather(*self.tasks))


def arrivals(engine: ScriptedEngine) -> list[str]:
    """The names of the requests in the order in which the engine got them."""
    found = []
    for seen in engine.work:
        messages = seen.json()["messages"]
        assert isinstance(messages, list)
        found.append(str(messages[0]["content"]))
    return found


async def holders(
    proxy: Proxy, engine: ScriptedEngine, count: int, *, class_name: str = ""
) -> list[asyncio.Task[Answer]]:
    """Take `count` seats with requests of a tenant that nobody else is."""
    headers = identity("holder", class_name)
    tasks = [
        asyncio.create_task(
            ask(proxy.url, CHAT, named("holder"), headers=headers, patience_s=WAITS_S)
        )
        for _ in range(count)
    ]
    await until(lambda: engine.busy == count, what="the seats are taken")
    return tasks
