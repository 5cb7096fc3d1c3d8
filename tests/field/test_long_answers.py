"""May an answer take as long as it needs, at the settings that a user starts with?"""

import asyncio

import pytest

from tests.support.policies import policy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import RawClient, chat_body, parse_head, request
from tests.support.scripted_engine import Exchange, ScriptedEngine, probes_first
from tests.support.vllm_answers import DONE, chat_answer, chat_chunk, chunk, stream_head

CHAT = "/v1/chat/completions"
STREAM_S = 340
BETWEEN_S = 5
PLAIN_S = 320
PATIENCE_S = 500


@pytest.mark.nightly
@pytest.mark.timeout(PATIENCE_S + 60)
async def test_a05_answers_of_more_than_five_minutes_are_whole(start_proxy: ProxyStarter) -> None:
    """A stream of 340 s with an event every 5 s, and a plain answer of which nothing comes for
    320 s: the time of a long generation that is not streamed. No time-out is set."""
    plain = chat_answer()

    async def slow(exchange: Exchange) -> None:
        if not exchange.request.json().get("stream"):
            await exchange.pause(PLAIN_S)
            await exchange.send(plain)
            return
        await exchange.send(stream_head())
        for number in range(STREAM_S // BETWEEN_S):
            await exchange.pause(BETWEEN_S)
            await exchange.send(chunk(chat_chunk(text=f"event {number}.")))
        await exchange.send(chunk(DONE))
        await exchange.end()

    async def whole(url: str, *, stream: bool) -> bytes:
        async with await RawClient.open(url) as client, asyncio.timeout(PATIENCE_S):
            closing = {"Connection": "close"}
            await client.send(request("POST", CHAT, body=chat_body(stream=stream), headers=closing))
            return await client.reader.read()

    async with ScriptedEngine(probes_first(slow)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy()])
        streamed, answered = await asyncio.gather(
            whole(proxy.url, stream=True), whole(proxy.url, stream=False)
        )
    assert all(b"event %d." % number in streamed for number in range(STREAM_S // BETWEEN_S))
    assert streamed.endswith(b"0\r\n\r\n")
    head, end, body = answered.partition(b"\r\n\r\n")
    assert parse_head(head + end).status == 200
    assert body == plain.partition(b"\r\n\r\n")[2]
