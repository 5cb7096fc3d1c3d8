"""How requests to the emulator end when somebody leaves: the client, or the server."""

import asyncio
import json

import pytest
from giveway_simulation.emulator import Emulator

from tests.simulation.conftest import StartEmulator
from tests.simulation.engine_fixtures import chat, url_of
from tests.support.raw_client import ClosedError, RawClient, request
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
LONG = {
    CHAT: chat(max_tokens=3000),
    "/v1/completions": {"prompt": "hello", "max_tokens": 3000},
    "/v1/responses": {"input": "hello", "max_output_tokens": 3000},
    "/v1/messages": chat(max_tokens=3000),
}


def running_and_waiting(emulator: Emulator) -> tuple[int, int]:
    statistics = emulator.engine.statistics()
    return statistics.running, statistics.waiting


@pytest.mark.parametrize("way", ["close", "reset", "half-close"])
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("path", sorted(LONG))
async def test_client_that_leaves_frees_its_seat(
    emulator: Emulator, path: str, streams: bool, way: str
) -> None:
    """Closed, reset or half-closed, streamed or not, on every endpoint."""
    async with await RawClient.open(url_of(emulator)) as client:
        await client.send(request("POST", path, body=LONG[path] | {"stream": streams}))
        await until(lambda: running_and_waiting(emulator) == (1, 0), what="the request runs")
        match way:
            case "close":
                await client.close()
            case "reset":
                client.reset()
            case _:
                client.half_close()
        await until(lambda: running_and_waiting(emulator) == (0, 0), what="the seat is free")
    assert emulator.engine.statistics().kv_blocks_used == 0


async def test_client_that_leaves_the_queue_is_forgotten_and_the_next_one_served(
    start_emulator: StartEmulator,
) -> None:
    """One seat, two waiting; the first of them leaves; the second gets its answer."""
    emulator = await start_emulator(seats=1)
    url = url_of(emulator)
    async with (
        await RawClient.open(url) as running,
        await RawClient.open(url) as leaving,
        await RawClient.open(url) as staying,
    ):
        await running.send(request("POST", CHAT, body=chat(max_tokens=300)))
        await until(lambda: running_and_waiting(emulator) == (1, 0), what="the first runs")
        await leaving.send(request("POST", CHAT, body=chat(max_tokens=3000, stream=True)))
        await until(lambda: running_and_waiting(emulator) == (1, 1), what="the second waits")
        await staying.send(request("POST", CHAT, body=chat(max_tokens=2)))
        await until(lambda: running_and_waiting(emulator) == (1, 2), what="the third waits")
        leaving.reset()
        await until(lambda: running_and_waiting(emulator) == (1, 1), what="it left the queue")
        assert (await staying.answer()).status == 200
        assert (await running.answer()).status == 200
    # 300 + 2 tokens; none of the 3,000.
    assert emulator.engine.statistics().generation_tokens == 302


async def test_all_answers_of_a_request_end_with_its_client(emulator: Emulator) -> None:
    """n = 4 are four sequences of one client."""
    async with await RawClient.open(url_of(emulator)) as client:
        await client.send(request("POST", CHAT, body=chat(max_tokens=3000, n=4)))
        await until(lambda: running_and_waiting(emulator) == (4, 0), what="four sequences run")
        client.reset()
        await until(lambda: running_and_waiting(emulator) == (0, 0), what="all are gone")


async def test_stop_ends_streams_properly_with_finish_reason_abort(
    start_emulator: StartEmulator,
) -> None:
    """As vLLM on SIGTERM: the last event says abort, then [DONE]; plain answers are 200 too."""
    emulator = await start_emulator()
    url = url_of(emulator)
    async with await RawClient.open(url) as streaming, await RawClient.open(url) as plain:
        await streaming.send(request("POST", CHAT, body=chat(max_tokens=3000, stream=True)))
        await plain.send(request("POST", CHAT, body=chat(max_tokens=3000)))
        await until(lambda: running_and_waiting(emulator) == (2, 0), what="both run")
        await emulator.stop()
        await streaming.read_head()
        chunks = [data async for _, data in streaming.chunks()]
        answer = await plain.answer()
    last = json.loads(chunks[-2][6:])
    assert last["choices"][0]["finish_reason"] == "abort"
    assert chunks[-1] == b"data: [DONE]\n\n"
    choices = answer.json()["choices"]
    assert isinstance(choices, list)
    assert answer.status == 200
    assert choices[0]["finish_reason"] == "abort"
    with pytest.raises(ConnectionRefusedError):
        await RawClient.open(url)


async def test_stop_with_time_lets_running_streams_finish_and_refuses_new_ones_with_500(
    start_emulator: StartEmulator,
) -> None:
    """vLLM's --shutdown-timeout: /health stays 200, a new request gets 500."""
    emulator = await start_emulator(step_ms=5.0)
    url = url_of(emulator)
    async with await RawClient.open(url) as streaming, await RawClient.open(url) as late:
        await streaming.send(request("POST", CHAT, body=chat(max_tokens=60, stream=True)))
        await streaming.read_head()
        stopping = asyncio.create_task(emulator.stop(timeout_s=30.0))
        await until(lambda: emulator.is_stopping, what="the stop began")
        assert (await late.get("/health")).status == 200
        refused = await late.post(CHAT, chat())
        chunks = [data async for _, data in streaming.chunks()]
        await stopping
    assert refused.status == 500
    assert refused.error["message"] == "cannot schedule new futures after shutdown"
    assert json.loads(chunks[-2][6:])["choices"][0]["finish_reason"] == "length"


async def test_connection_is_kept_alive_between_requests(emulator: Emulator) -> None:
    """Also when the next request was sent before the last answer ended."""
    async with await RawClient.open(url_of(emulator)) as client:
        body = request("POST", CHAT, body=chat(max_tokens=20))
        await client.send(body + body)
        assert (await client.answer()).status == 200
        assert (await client.answer()).status == 200
        assert (await client.get("/health")).status == 200


async def test_connection_close_is_obeyed(emulator: Emulator) -> None:
    """The header is repeated, and the connection closes after the answer."""
    async with await RawClient.open(url_of(emulator)) as client:
        await client.send(request("GET", "/health", headers={"Connection": "close"}))
        assert (await client.answer()).header("connection") == "close"
        with pytest.raises(ClosedError):
            await client.answer()
