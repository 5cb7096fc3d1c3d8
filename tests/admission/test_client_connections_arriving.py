"""How much do clients that are still sending make the proxy hold, and who goes on meanwhile?"""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from giveway_admission.serving import Server

from tests.admission.data_plane import CHAT, LOCAL, is_empty, queued, running
from tests.support.policies import policy
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scripted_engine import ScriptedEngine, answering, chatting, silent
from tests.support.vllm_answers import chat_answer, json_response
from tests.support.waiting import until

KIB = 1024
EMBEDDINGS = "/v1/embeddings"
NARROW = replace(LOCAL, maximum_arriving_bytes=1024 * KIB)
"""Room for four long bodies."""


async def half_sent(stack: AsyncExitStack, server: Server, *, path: str = CHAT) -> RawClient:
    """A client that has said that 300 KiB come, and has sent 1 KiB of it."""
    client = await stack.enter_async_context(await RawClient.open(server.data_url))
    data = request("POST", path, body=b'{"input":"%b"}' % (b"x" * 300 * KIB))
    await client.send(data[: 1 * KIB])
    return client


async def filled(stack: AsyncExitStack, server: Server) -> list[RawClient]:
    """The room is taken by four clients that send no further."""
    clients = [await half_sent(stack, server) for _ in range(4)]
    await until(lambda: server.proxy.arriving.held_bytes == 1024 * KIB, what="it is full")
    return clients


async def test_long_bodies_are_refused_when_too_many_arrive_and_small_ones_go_on(
    tmp_path: Path,
) -> None:
    """The fifth is told to come again; a small request passes; a place that gets free is given."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=replace(NARROW, arriving_wait_s=0.2)) as server,
        AsyncExitStack() as stack,
    ):
        await filled(stack, server)
        fifth = await half_sent(stack, server, path=EMBEDDINGS)
        assert (await ask(server.data_url, CHAT, chat_body())).status == 200
        answer = await fifth.answer()
        assert (answer.status, answer.error["code"]) == (429, "queue_full")
        assert answer.header("retry-after") == "1"
        assert server.proxy.arriving.waiting == 0
        assert server.proxy.arriving.held_bytes == 1024 * KIB


async def test_a_body_waits_in_its_socket_until_there_is_room(tmp_path: Path) -> None:
    """In order of arrival, when one before it is through or gone; nothing of it is lost."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=replace(NARROW, arriving_wait_s=30.0)) as server,
        AsyncExitStack() as stack,
    ):
        clients = await filled(stack, server)
        body = json.dumps(chat_body(text="long " * 50_000)).encode()
        late = await stack.enter_async_context(await RawClient.open(server.data_url))
        data = request("POST", CHAT, body=body)
        await late.send(data[: 8 * KIB])
        await until(lambda: server.proxy.arriving.waiting == 1, what="it waits")
        sending = asyncio.ensure_future(late.send(data[8 * KIB :]))
        await clients[0].close()
        assert (await late.answer()).status == 200
        await sending
        assert engine.work[-1].body == body
        for client in clients[1:]:
            await client.close()
        await is_empty(server)
        await until(lambda: server.proxy.arriving.held_bytes == 0, what="nothing is held")


async def test_the_go_ahead_for_a_long_body_waits_for_room(tmp_path: Path) -> None:
    """Who asks before sending is not invited to a full house."""
    async with (
        ScriptedEngine(answering(chat_answer())) as engine,
        running(engine.url, tmp_path, settings=replace(NARROW, arriving_wait_s=30.0)) as server,
        AsyncExitStack() as stack,
    ):
        clients = await filled(stack, server)
        polite = await stack.enter_async_context(await RawClient.open(server.data_url))
        data = request(
            "POST", CHAT, body=b'{"a":"%b"}' % (b"x" * 200_000), headers={"Expect": "100-continue"}
        )
        head, _, body = data.partition(b"\r\n\r\n")
        await polite.send(head + b"\r\n\r\n")
        await until(lambda: server.proxy.arriving.waiting == 1, what="it waits")
        await clients[0].close()
        assert await polite.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await polite.send(body)
        assert (await polite.answer()).status == 200


async def test_what_is_sent_ahead_is_dropped_when_there_is_no_room(tmp_path: Path) -> None:
    """The request that is served ends well and says close; the client sends the others again."""
    gate = asyncio.Event()
    async with (
        ScriptedEngine(chatting(gate=gate)) as engine,
        running(engine.url, tmp_path, settings=NARROW) as server,
        AsyncExitStack() as stack,
    ):
        await filled(stack, server)
        eager = await stack.enter_async_context(await RawClient.open(server.data_url))
        one = request("POST", CHAT, body=chat_body(text="y" * 4 * KIB))
        await eager.send(one)
        await until(lambda: engine.busy == 1, what="the first is at the engine")
        sending = asyncio.ensure_future(eager.send(one * 20))
        connections = server.proxy.connections
        await until(lambda: any(each._paused for each in connections), what="it is not read")
        assert sum(each.held_ahead_bytes for each in connections) == 0
        gate.set()
        answer = await eager.answer()
        assert answer.status == 200
        assert answer.header("connection") == "close"
        await asyncio.gather(sending, return_exceptions=True)
        assert len(engine.work) == 1


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize(("forwards", "wanted"), [("Forward", 0), ("None", 0)])
async def test_a_long_embedding_streams_through_with_our_priority(
    tmp_path: Path, forwards: str, wanted: int, *, chunked: bool
) -> None:
    """5 MB: only its begin is held while it waits, and the last priority in it is ours."""
    async with (
        ScriptedEngine(silent()) as engine,
        running(engine.url, tmp_path, policy(seats=1, engine={"priority": forwards})) as server,
        AsyncExitStack() as stack,
    ):
        blocker = await stack.enter_async_context(await RawClient.open(server.data_url))
        await blocker.send(request("POST", CHAT, body=chat_body()))
        await until(lambda: engine.busy == 1, what="the seat is taken")
        engine.script = answering(json_response({"usage": {"prompt_tokens": 1}}))
        body = b'{"model":"m","input":"%b","priority":-99} \n' % (b"x" * 5_000_000)
        client = await stack.enter_async_context(await RawClient.open(server.data_url))
        sending = asyncio.ensure_future(
            client.send(request("POST", EMBEDDINGS, body=body, chunked=chunked))
        )
        await until(lambda: queued(server) == 1, what="it waits")
        assert server.statistics().queued_bytes < 1024 * KIB
        await blocker.close()
        assert (await client.answer()).status == 200
        await sending
        seen = engine.work[-1]
        assert seen.json() == {"model": "m", "input": "x" * 5_000_000, "priority": wanted}
        assert (seen.header("content-length") is None) is chunked


async def test_a_body_in_single_bytes_takes_little_more_than_its_bytes(tmp_path: Path) -> None:
    """3,000 pieces are held in a handful of parts."""
    async with (
        ScriptedEngine(answering(chat_answer())) as engine,
        running(engine.url, tmp_path) as server,
    ):
        body = b'{"a":"%b"}' % (b"x" * 3_000)
        async with await RawClient.open(server.data_url) as client:
            data = request("POST", CHAT, body=body)
            await client.send(data[:-3_000])
            (connection,) = server.proxy.connections
            for at in range(3_000, 1, -1):
                await client.send(data[-at : -at + 1])
                await asyncio.sleep(0)
            assert connection._body is not None
            assert len(connection._body._kept) <= 9
            await client.send(data[-1:])
            assert (await client.answer()).status == 200
        assert engine.work[0].body == body
