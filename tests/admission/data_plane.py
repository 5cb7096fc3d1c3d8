"""How does a test run a whole proxy inside its own event loop?

As `giveway serve` does, without the process: what is inside (connections, scheduler, pool) can be
looked at directly.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from giveway_admission.serving import Server
from giveway_admission.settings import ProxySettings

from tests.support.policies import Spec, policy, write_policy
from tests.support.raw_client import RawClient, chat_body, request
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
LOCAL = ProxySettings(upstream="", host="127.0.0.1", port=0, admin_host="127.0.0.1", admin_port=0)


@asynccontextmanager
async def running(
    upstream: str,
    folder: Path,
    *documents: Spec,
    settings: ProxySettings = LOCAL,
    engine_is_up: bool = True,
) -> AsyncIterator[Server]:
    """A proxy before `upstream`. Without documents: three classes, four seats, no rate limits."""
    path = write_policy(folder, *(documents or (policy(),)))
    async with Server(replace(settings, upstream=upstream, policy=path)) as server:
        if engine_is_up:
            await until(lambda: server.engine_up, what="the engine answers its health check")
        yield server


async def is_empty(server: Server) -> None:
    """Wait until no request is left anywhere."""

    def empty() -> bool:
        now = server.statistics()
        return not (server.proxy.busy or now.running or now.queued or len(server.proxy.ids))

    await until(empty, what="no request is left")


async def posted(url: str, body: object | None = None, **headers: str) -> RawClient:
    """A client that has sent one chat request and read nothing yet."""
    client = await RawClient.open(url)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = chat_body() if body is None else body
    await client.send(request("POST", CHAT, body=sent, headers=named))
    return client


def queued(server: Server) -> int:
    return server.statistics().queued
