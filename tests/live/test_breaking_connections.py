"""What do too many connections cost those who were there before?"""

import asyncio
import contextlib
import socket
from urllib.parse import urlsplit

from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import RawClient, ask, chat_body
from tests.support.scraping import outcomes
from tests.support.scripted_engine import ScriptedEngine, chatting
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
_TOO_MANY = 200


async def test_refused_clients_hold_only_a_few_connections(start_proxy: ProxyStarter) -> None:
    """Some are told why, the rest is cut at once, all are counted; who is inside is served."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url, "--max-connections", "2")
        async with await RawClient.open(proxy.url) as inside, await RawClient.open(proxy.url):
            assert (await inside.post(CHAT, chat_body())).status == 200
            before = proxy.open_files
            parts = urlsplit(proxy.url)
            loop = asyncio.get_running_loop()
            outside = [socket.socket() for _ in range(_TOO_MANY)]
            try:
                for each in outside:
                    each.setblocking(False)
                    with contextlib.suppress(ConnectionError):
                        await loop.sock_connect(each, (parts.hostname, parts.port))
                await until(
                    lambda: _refused(proxy.admin_url, _TOO_MANY), what="all of them are counted"
                )
                await until(
                    lambda: proxy.open_files <= before + 70,
                    what="few are held",
                    within_s=1.0,  # refused clients may stay for two seconds
                )
                assert (await inside.post(CHAT, chat_body())).status == 200
            finally:
                for each in outside:
                    each.close()
        await until(lambda: proxy.open_files < before, what="all are given back")
        assert (await ask(proxy.url, CHAT, chat_body())).status == 200


async def test_c09_each_refused_client_is_told_so(start_proxy: ProxyStarter) -> None:
    """C09: of 300 that come at once with their requests, nobody sees a bare close."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url, "--max-connections", "2")
        async with await RawClient.open(proxy.url), await RawClient.open(proxy.url):
            asked = (ask(proxy.url, CHAT, chat_body()) for _ in range(300))
            answers = await asyncio.gather(*asked)
            assert {(each.status, each.header("retry-after")) for each in answers} == {(429, "1")}
            assert {each.error["code"] for each in answers} == {"queue_full"}
            await until(lambda: _refused(proxy.admin_url, 300), what="all are counted")


async def _refused(admin_url: str, count: int) -> bool:
    return (await outcomes(admin_url)).get("queue_full") == count
