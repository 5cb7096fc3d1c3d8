"""What the emulator sends while it generates, and when."""

import asyncio
import json
import time
from typing import cast

import pytest
from giveway_simulation.emulator import Emulator
from giveway_simulation.emulator_answers import make_answer
from giveway_simulation.emulator_http import Exchange, HttpRequest
from giveway_simulation.emulator_requests import (
    Api,
    OutputLengths,
    ReadingSettings,
    read_generating,
)

from tests.simulation.conftest import StartEmulator
from tests.simulation.engine_fixtures import chat, url_of
from tests.support.raw_client import RawClient, request

CHAT = "/v1/chat/completions"


async def stream(client: RawClient, body: dict[str, object]) -> list[bytes]:
    """Send a streaming request; returns the data of each HTTP chunk."""
    await client.send(request("POST", CHAT, body=body | {"stream": True}))
    head = await client.read_head()
    assert head.status == 200
    return [data async for _, data in client.chunks()]


async def test_each_event_is_one_http_chunk_and_each_token_one_event(emulator: Emulator) -> None:
    """5 tokens: the role, 5 deltas, [DONE]."""
    async with await RawClient.open(url_of(emulator)) as client:
        chunks = await stream(client, chat(max_tokens=5))
    assert len(chunks) == 7
    assert all(chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") for chunk in chunks)
    assert chunks[-1] == b"data: [DONE]\n\n"


async def test_head_of_a_queued_stream_comes_before_its_turn(
    start_emulator: StartEmulator,
) -> None:
    """One seat, taken for 0.4 s: the second stream's 200 is there at once, its events are not."""
    emulator = await start_emulator(step_ms=10.0, seats=1)
    async with (
        await RawClient.open(url_of(emulator)) as first,
        await RawClient.open(url_of(emulator)) as second,
    ):
        await first.send(request("POST", CHAT, body=chat(max_tokens=40, stream=True)))
        await first.read_head()
        await second.send(request("POST", CHAT, body=chat(max_tokens=1, stream=True)))
        assert (await second.read_head()).status == 200
        assert emulator.engine.statistics().waiting == 1
        first_chunks = [data async for _, data in first.chunks()]
        assert emulator.engine.statistics().waiting == 0
        second_chunks = [data async for _, data in second.chunks()]
    assert len(first_chunks) == 42
    assert len(second_chunks) == 3


async def test_tokens_come_at_the_pace_of_the_steps(start_emulator: StartEmulator) -> None:
    """20 tokens at 10 ms a step take 200 ms, and not less: no token runs ahead."""
    emulator = await start_emulator(step_ms=10.0)
    async with await RawClient.open(url_of(emulator)) as client:
        started_s = time.monotonic()
        await stream(client, chat(max_tokens=20))
        assert time.monotonic() - started_s >= 0.2


async def test_usage_is_told_only_to_who_asked(emulator: Emulator) -> None:
    """include_usage adds one event with no choices; continuous_usage_stats counts in each."""
    async with await RawClient.open(url_of(emulator)) as client:
        plain = await stream(client, chat(max_tokens=3))
        assert not any(b'"usage"' in chunk for chunk in plain)
        options = {"include_usage": True, "continuous_usage_stats": True}
        told = await stream(client, chat(max_tokens=3, stream_options=options))
    counts = [
        json.loads(chunk[6:])["usage"]["completion_tokens"]
        for chunk in told
        if b"[DONE]" not in chunk
    ]
    assert counts == [0, 1, 2, 3, 3]
    assert json.loads(told[-2][6:])["choices"] == []


async def test_several_answers_share_the_prompt_and_are_counted_together(
    emulator: Emulator,
) -> None:
    """n = 3 at 4 tokens each: 12 completion tokens, the prompt once."""
    async with await RawClient.open(url_of(emulator)) as client:
        one = (await client.post(CHAT, chat(max_tokens=4))).json()["usage"]
        three = (await client.post(CHAT, chat(max_tokens=4, n=3))).json()
    assert isinstance(one, dict)
    assert three["usage"] == {
        "prompt_tokens": one["prompt_tokens"],
        "total_tokens": one["prompt_tokens"] + 12,
        "completion_tokens": 12,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }
    assert isinstance(three["choices"], list)
    assert [choice["index"] for choice in three["choices"]] == [0, 1, 2]


async def test_prompt_takes_four_bytes_a_token_and_a_list_of_numbers_counts_itself(
    emulator: Emulator,
) -> None:
    """So that a load generator can make a prompt of any length."""
    async with await RawClient.open(url_of(emulator)) as client:
        for prompt, tokens in (("abcd" * 100, 100), ("abcde", 2), ([1, 2, 3], 3)):
            answer = await client.post("/v1/completions", {"prompt": prompt, "max_tokens": 1})
            usage = answer.json()["usage"]
            assert isinstance(usage, dict)
            assert usage["prompt_tokens"] == tokens


async def test_tokenizing_and_detokenizing_are_inverse(emulator: Emulator) -> None:
    """Also for text that is cut inside a letter."""
    text = "naïve Zürich, 東京"
    async with await RawClient.open(url_of(emulator)) as client:
        tokens = (await client.post("/tokenize", {"prompt": text})).json()
        back = (await client.post("/detokenize", {"tokens": tokens["tokens"]})).json()
    assert back == {"prompt": text}
    assert tokens["count"] == 6  # 21 bytes


async def test_request_id_becomes_the_answers_id(emulator: Emulator) -> None:
    """Also for two at once with the same one."""
    async with await RawClient.open(url_of(emulator)) as client:
        headers = {"X-Request-Id": "abc-123"}
        answer = await client.post(CHAT, chat(), headers=headers)
        assert answer.json()["id"] == "chatcmpl-abc-123"


@pytest.mark.parametrize(
    ("path", "body", "header", "goes_first"),
    [
        (CHAT, chat(priority=0), None, True),
        (CHAT, chat(priority=20), None, False),
        (CHAT, chat(priority=20), "0", True),
        (CHAT, chat(priority=0), "20", False),
        ("/v1/messages", chat(priority=20), None, True),
        ("/v1/messages", chat(priority=0), "20", False),
    ],
)
async def test_header_beats_the_bodys_priority_and_messages_know_the_header_alone(
    start_emulator: StartEmulator,
    path: str,
    body: dict[str, object],
    header: str | None,
    goes_first: bool,
) -> None:
    """One seat; one of priority 10 waits; does the newcomer pass it?"""
    emulator = await start_emulator(step_ms=10.0, seats=1, priority=True)
    url = url_of(emulator)
    async with (
        await RawClient.open(url) as running,
        await RawClient.open(url) as waiting,
        await RawClient.open(url) as newcomer,
    ):
        await running.send(request("POST", CHAT, body=chat(max_tokens=20, stream=True)))
        await running.read_head()
        await waiting.send(request("POST", CHAT, body=chat(priority=10, stream=True)))
        await waiting.read_head()
        headers = None if header is None else {"X-Vllm-Priority": header}
        await newcomer.send(request("POST", path, body=body | {"stream": True}, headers=headers))
        await newcomer.read_head()
        old_s, new_s = await asyncio.gather(first_data_s(waiting), first_data_s(newcomer))
    assert (new_s < old_s) == goes_first


async def first_data_s(client: RawClient) -> float:
    """When the first event came; the rest is read too."""
    times_s = [at_s async for at_s, _ in client.chunks()]
    return times_s[0]


class FullConnection:
    """An exchange whose client reads nothing for a while."""

    def __init__(self) -> None:
        self.congested = False
        self.sent: list[bytes] = []

    def begin_events(self) -> None:
        pass

    def send(self, events: list[bytes]) -> None:
        self.sent += events

    def end(self) -> None:
        self.sent.append(b"end")


def test_slow_reader_gets_fewer_and_longer_events_and_loses_no_token() -> None:
    """Tokens 2 to 4 come while the connection is full: they go out together with the fifth."""
    body = json.dumps(chat(max_tokens=6, stream=True)).encode()
    asked = read_generating(
        Api.CHAT,
        HttpRequest(
            method="POST", path=CHAT, headers={b"content-type": b"application/json"}, body=body
        ),
        settings=ReadingSettings(
            model="emulated", max_model_len=4096, output_lengths=OutputLengths.FULL
        ),
    )
    connection = FullConnection()
    answer = make_answer(asked, cast("Exchange", connection), name="x")
    answer.begin()
    for number in range(1, 7):
        connection.congested = 2 <= number <= 4
        answer.token(0, finished=number == 6)
    texts = [json.loads(event[6:]) for event in connection.sent[:-2]]
    lengths = [len(each["choices"][0]["delta"]["content"]) // 4 for each in texts]
    assert lengths == [0, 1, 4, 1]  # the role, then tokens
    assert connection.sent[-2:] == [b"data: [DONE]\n\n", b"end"]


async def test_header_sets_a_length_below_the_bound(emulator: Emulator) -> None:
    """A test can have an answer that stops by itself; the bound stays a bound."""
    async with await RawClient.open(url_of(emulator)) as client:
        for asked, length, reason in (("3", 3, "stop"), ("99", 10, "length")):
            headers = {"X-Emulator-Output-Tokens": asked}
            answer = (await client.post(CHAT, chat(max_tokens=10), headers=headers)).json()
            assert isinstance(answer["usage"], dict)
            assert isinstance(answer["choices"], list)
            assert answer["usage"]["completion_tokens"] == length
            assert answer["choices"][0]["finish_reason"] == reason


async def test_random_lengths_follow_the_seed_and_stay_below_the_bound(
    start_emulator: StartEmulator,
) -> None:
    """Equal seeds, equal lengths; ignore_eos is obeyed."""
    emulator = await start_emulator(output_lengths=OutputLengths.RANDOM)

    async def length(client: RawClient, more: dict[str, object]) -> int:
        usage = (await client.post(CHAT, chat(max_tokens=60) | more)).json()["usage"]
        assert isinstance(usage, dict)
        return int(usage["completion_tokens"])

    async with await RawClient.open(url_of(emulator)) as client:
        lengths = [await length(client, {"seed": seed}) for seed in range(6)]
        assert await length(client, {"seed": 3}) == lengths[3]
        assert await length(client, {"seed": 3, "ignore_eos": True}) == 60
    assert len(set(lengths)) > 2
    assert all(1 <= each <= 60 for each in lengths)


async def test_answer_without_a_bound_ends_by_itself(emulator: Emulator) -> None:
    """Chat has no default bound; a completion has 16 tokens."""
    async with await RawClient.open(url_of(emulator)) as client:
        chatting = (await client.post(CHAT, chat(max_tokens=None))).json()["choices"]
        completed = (await client.post("/v1/completions", {"prompt": "hello"})).json()["usage"]
    assert isinstance(chatting, list)
    assert chatting[0]["finish_reason"] == "stop"
    assert isinstance(completed, dict)
    assert completed["completion_tokens"] == 16
