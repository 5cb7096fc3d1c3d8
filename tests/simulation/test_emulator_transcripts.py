"""The emulator's answers against recordings of a real vLLM."""

import json
import re

import pytest
from giveway_simulation.emulator import Emulator

from tests.simulation.conftest import StartEmulator
from tests.simulation.engine_fixtures import chat, url_of
from tests.support import recordings
from tests.support.raw_client import Answer, RawClient, request

PROMPT = {"prompt": "hello there", "max_tokens": 5}
INPUT = {"input": "hello there", "max_output_tokens": 5}
MESSAGE = chat(max_tokens=5)
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
CONTINUOUS = {
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}

CASES: dict[str, tuple[str, dict[str, object] | None]] = {
    "chat-plain": ("/v1/chat/completions", chat(max_tokens=5)),
    "chat-stream": ("/v1/chat/completions", chat(max_tokens=5, stream=True)),
    "chat-stream-usage": ("/v1/chat/completions", chat(max_tokens=5) | USAGE),
    "chat-stream-continuous-usage": ("/v1/chat/completions", chat(max_tokens=5) | CONTINUOUS),
    "chat-two-answers-stream-usage": ("/v1/chat/completions", chat(max_tokens=5, n=2) | USAGE),
    "completions-plain": ("/v1/completions", PROMPT),
    "completions-stream-usage": ("/v1/completions", PROMPT | USAGE),
    "responses-plain": ("/v1/responses", INPUT),
    "responses-stream": ("/v1/responses", INPUT | {"stream": True}),
    "messages-plain": ("/v1/messages", MESSAGE),
    "messages-stream": ("/v1/messages", MESSAGE | {"stream": True}),
    "embeddings": ("/v1/embeddings", {"input": ["hello", "there"]}),
    "models": ("/v1/models", None),
    "error-missing-messages": ("/v1/chat/completions", {"model": "emulated"}),
    "error-too-long": ("/v1/chat/completions", chat(text="hello there " * 4096)),
    "error-unknown-model": ("/v1/chat/completions", chat(model="nope")),
    "error-unknown-model-messages": ("/v1/messages", MESSAGE | {"model": "nope"}),
}


def structure(value: object) -> object:
    """A JSON value without its contents: keys in order, and the kinds of the leaves."""
    if isinstance(value, dict):
        return [(key, structure(inside)) for key, inside in value.items()]
    if isinstance(value, list):
        kinds = [structure(inside) for inside in value]
        return kinds if not kinds or isinstance(kinds[0], list) else kinds[0]
    return type(value).__name__


def events(answer: Answer) -> list[object]:
    """What the events of a stream look like; equal ones in a row (deltas) count once."""
    shapes: list[object] = []
    for event in answer.body.decode().split("\n\n")[:-1]:
        name, _, data = event.rpartition("data: ")
        shape = (name, data if data == "[DONE]" else structure(json.loads(data)))
        if not shapes or shapes[-1] != shape:
            shapes.append(shape)
    return shapes


def head(answer: Answer) -> tuple[int, list[str]]:
    return answer.status, [name for name, _ in answer.head.headers]


def test_every_recording_is_compared() -> None:
    """A new recording fails here until the emulator is held against it."""
    assert set(CASES) == set(recordings.names())


@pytest.mark.parametrize("name", sorted(CASES))
async def test_answer_has_the_form_that_vllm_gave_it(name: str, emulator: Emulator) -> None:
    """Same status, header names in order, events in order, keys in order, kinds of values."""
    path, body = CASES[name]
    recorded = recordings.answer(name)
    method = "GET" if body is None else "POST"
    async with await RawClient.open(url_of(emulator)) as client:
        await client.send(request(method, path, body=body, headers={"Connection": "close"}))
        answer = await client.answer()
    assert head(answer) == head(recorded)
    if recorded.head.is_chunked:
        assert without_alternation(events(answer)) == without_alternation(events(recorded))
    else:
        assert structure(answer.json()) == structure(recorded.json())


def without_alternation(shapes: list[object]) -> list[object]:
    """Every form once, in the order of first appearance: two answers' events come interleaved."""
    return list(dict.fromkeys(map(str, shapes)))


@pytest.mark.parametrize("name", ["error-missing-messages", "error-too-long"])
async def test_error_is_told_in_vllms_words(name: str, start_emulator: StartEmulator) -> None:
    """The same body to the letter, numbers of the request aside."""
    emulator = await start_emulator(max_model_len=4096)
    path, body = CASES[name]
    async with await RawClient.open(url_of(emulator)) as client:
        answer = await client.post(path, body)
    assert without_sizes(answer.body) == without_sizes(recordings.answer(name).body)


def without_sizes(body: bytes) -> str:
    return re.sub(r"dict of \d+ items", "dict of N items", body.decode())
