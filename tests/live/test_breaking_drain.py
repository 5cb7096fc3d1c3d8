"""Who is told what when the proxy ends in the middle of things?"""

import signal

import pytest

from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scripted_engine import ScriptedEngine, chatting

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
_LONG = chat_body(text="x" * 1000)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])
async def test_who_is_still_sending_is_told_at_once_that_the_proxy_ends(
    start_proxy: ProxyStarter, chunked: bool
) -> None:
    """A half-sent body gets 503 `draining` before the proxy ends, and not a reset."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url)
        async with await RawClient.open(proxy.url) as client:
            await client.send(request("POST", CHAT, body=_LONG, chunked=chunked)[:500])
            assert (await ask(proxy.url, CHAT, chat_body())).status == 200  # the half is read too
            proxy.signal(signal.SIGTERM)
            answer = await client.answer()
            assert answer.status == 503
            assert answer.error["code"] == "draining"
            assert await client.read_until_close() == b""
        assert await proxy.exited() == 0
        assert len(engine.work) == 1
