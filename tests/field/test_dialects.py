"""Does what people do with LLM APIs pass unchanged, and is it charged as the engine says?

Every dialect, in the shapes that made other gateways stumble.
"""

import json
from collections.abc import Iterable

import pytest

from tests.support import recordings
from tests.support.lines import CHAT
from tests.support.metering import Meter
from tests.support.proxy_fixtures import Stand
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scraping import outcomes, scrape
from tests.support.scripted_engine import (
    Exchange,
    Script,
    answering,
    chatting,
    in_pieces,
    probes_first,
)
from tests.support.vllm_answers import (
    DONE,
    chat_answer,
    chat_chunk,
    chat_events,
    chunked,
    error_answer,
    event,
    json_response,
    stream_head,
    usage,
    wants_usage,
)
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
TEXTS = ("日本語", "👩‍👩‍👧", "é", "…")


def _responses_events(texts: Iterable[str], end: str = "completed") -> list[bytes]:
    reported = {"input_tokens": 9, "output_tokens": 4}
    last: dict[str, object] = {
        "type": f"response.{end}",
        "response": {"status": end, "usage": reported},
    }
    events: list[dict[str, object]] = [
        {"type": "response.created", "response": {"usage": None}},
        last,
    ]
    events[1:1] = [{"type": "response.output_text.delta", "delta": text} for text in texts]
    return [event(each, name=str(each["type"])) for each in events]


def _messages_events(texts: Iterable[str]) -> list[bytes]:
    before = {"usage": {"input_tokens": 9, "output_tokens": 0}}
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": before},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": text},
            }
            for text in texts
        ),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 4},
        },
        {"type": "message_stop"},
    ]
    return [event(each, name=str(each["type"])) for each in events]


STREAMS = {
    "chat": (CHAT, chat_events(TEXTS, prompt_tokens=9, include_usage=True)),
    "responses": (RESPONSES, _responses_events(TEXTS)),
    "messages": (MESSAGES, _messages_events(TEXTS)),
}


def _streamed(path: str) -> dict[str, object]:
    """A streaming request of any dialect; usage is asked for where that is possible."""
    body = chat_body(stream=True, input="hello")
    if path == CHAT:
        body["stream_options"] = {"include_usage": True}
    return body


@pytest.mark.slow
@pytest.mark.parametrize("piece_bytes", [1, 7])
@pytest.mark.parametrize("name", STREAMS)
async def test_text_cut_inside_its_characters_passes_and_is_charged(
    stand: Stand, name: str, piece_bytes: int
) -> None:
    """Written in pieces that end inside characters, events and chunk heads."""
    path, events = STREAMS[name]
    data = chunked(events)
    pieces = [data[at : at + piece_bytes] for at in range(0, len(data), piece_bytes)]
    stand.engine.script = in_pieces([stream_head(), *pieces], gap_s=0)
    answer, prompt, completion = await stand.charge_of(path, _streamed(path))
    assert answer.body == b"".join(events)
    assert (prompt, completion) == (9, 4)


async def test_two_answers_in_one_stream_are_one_request(stand: Stand) -> None:
    """n = 2, recorded from an engine: bytes as they were, usage charged once, one first token."""
    name = "chat-two-answers-stream-usage"
    recorded = recordings.answer(name)
    stand.engine.script = answering(recordings.raw(name))
    before = (await scrape(stand.proxy.admin_url)).total(FIRST)
    answer, prompt, completion = await stand.charge_of(CHAT, {**_streamed(CHAT), "n": 2})
    assert answer.body == recorded.body
    reports = [
        json.loads(line[5:])["usage"]
        for line in recorded.body.splitlines()
        if line.startswith(b"data: {") and json.loads(line[5:]).get("usage")
    ]
    assert (prompt, completion) == (
        reports[-1]["prompt_tokens"],
        reports[-1]["completion_tokens"],
    )
    assert (await scrape(stand.proxy.admin_url)).total(FIRST) == before + 1


FIRST = "giveway_time_to_first_token_seconds_count"


def _delta(**delta: object) -> bytes:
    return event(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
        }
    )


def _call(**function: str) -> dict[str, object]:
    return {"tool_calls": [{"index": 0, "id": "call_1", "function": function}]}


LOGPROBS = {
    "content": [
        {"token": 'a"content":"b', "logprob": -0.1, "bytes": [97], "top_logprobs": []},
    ]
}
SHAPES: dict[str, list[bytes]] = {
    "tools": [
        _delta(role="assistant", content=None),
        _delta(**_call(name="f", arguments="")),
        _delta(**_call(arguments='{"choices": [')),
        _delta(**_call(arguments='], "usage": 1}')),
        chat_chunk(finish_reason="tool_calls"),
    ],
    "reasoning": [
        _delta(role="assistant", content=""),
        _delta(reasoning="first I"),
        _delta(reasoning_content=" think"),
        _delta(content="then I say"),
        chat_chunk(finish_reason="stop"),
    ],
    "logprobs": [
        _delta(content="a"),
        event({"choices": [{"index": 0, "delta": {"content": "b"}, "logprobs": LOGPROBS}]}),
        chat_chunk(finish_reason="length"),
    ],
    "text-like-events": [
        _delta(content='{"choices": [], "usage": {"prompt_tokens": 99}}'),
        _delta(content="data: [DONE]\n\n"),
        _delta(content='\n\ndata: {"error": {"message": "no"}}\n\n'),
        chat_chunk(finish_reason="stop"),
    ],
    "comments-and-ids": [
        b": keep-alive\n\n",
        b"id: 7\nretry: 100\n" + _delta(content="a"),
        b"event: message\n" + _delta(content="b"),
        chat_chunk(finish_reason="stop"),
    ],
    "carriage-returns": [
        _delta(content="a").replace(b"\n", b"\r\n"),
        chat_chunk(finish_reason="stop").replace(b"\n", b"\r\n"),
    ],
}


@pytest.mark.parametrize("asked", [False, True], ids=["usage-hidden", "usage-asked"])
@pytest.mark.parametrize("name", SHAPES)
async def test_every_shape_of_a_chat_stream_passes(stand: Stand, name: str, asked: bool) -> None:
    """Only a usage event that the client did not ask for is missing; the charge is the report."""
    shown = SHAPES[name]
    report = chat_chunk(with_usage=usage(21, 34), choices=False)
    stand.engine.script = answering(stream_head() + chunked([*shown, report, DONE]))
    body = _streamed(CHAT) if asked else chat_body(stream=True)
    answer, prompt, completion = await stand.charge_of(CHAT, body)
    assert answer.body == b"".join([*shown, *([report] if asked else []), DONE])
    assert (prompt, completion) == (21, 34)


async def test_the_first_token_of_a_thought_is_a_first_token(stand: Stand) -> None:
    """Reasoning opens the prompt gate: the engine has prefilled, whatever it says first."""

    async def thinking(exchange: Exchange) -> None:
        await exchange.send(stream_head())
        await exchange.send_events([_delta(reasoning="hm")])
        await exchange.never()

    stand.engine.script = probes_first(thinking)
    before = (await scrape(stand.proxy.admin_url)).total(FIRST)
    async with await RawClient.open(stand.proxy.url) as client:
        await client.send(request("POST", CHAT, body=chat_body(stream=True, text="x" * 4000)))
        await client.read_head()
        await client.read_chunk()

        async def seen() -> bool:
            samples = await scrape(stand.proxy.admin_url)
            return (
                samples.total(FIRST) == before + 1
                and samples.value("giveway_unprefilled_tokens") == 0
                and samples.total("giveway_running_requests") == 1
            )

        await until(seen, what="the first token is seen while it runs on")


OPTIONS: dict[str, object] = {
    "null": None,
    "empty": {},
    "false": {"include_usage": False},
    "true": {"include_usage": True},
    "continuous": {"include_usage": True, "continuous_usage_stats": True},
    "continuous-alone": {"continuous_usage_stats": True},
    "other": {"include_obfuscation": False},
    "no-object": "yes",
}


@pytest.mark.parametrize("name", OPTIONS)
async def test_stream_options_of_any_kind_show_what_a_direct_run_shows(
    stand: Stand, name: str
) -> None:
    """What the client asked for reaches it, and only that; all it wrote reaches the engine."""

    async def run(exchange: Exchange) -> None:
        asked = wants_usage(exchange.request.body)
        events = chat_events(["a", "b"], prompt_tokens=9, include_usage=asked)
        await exchange.send(stream_head() + chunked(events))

    stand.engine.script = probes_first(run)
    given = OPTIONS[name]
    body = chat_body(stream=True, stream_options=given)
    answer, prompt, completion = await stand.charge_of(CHAT, body)
    asked = isinstance(given, dict) and given.get("include_usage") is True
    assert answer.body == b"".join(chat_events(["a", "b"], prompt_tokens=9, include_usage=asked))
    seen = stand.engine.work[-1].json()["stream_options"]
    if name == "continuous-alone":  # asked for as well, it would show usage in every event
        assert (seen, completion) == (given, 2)
    elif isinstance(given, dict):
        assert seen == {**given, "include_usage": True}
        assert (prompt, completion) == (9, 2)
    elif given is not None:
        assert seen == given


async def test_a_stream_without_any_usage_is_charged_by_its_events(stand: Stand) -> None:
    """An engine that does not know usage in streams: our estimate, and the pieces of output."""
    stand.engine.script = answering(stream_head() + chunked(chat_events(["x"] * 50)))
    answer, prompt, completion = await stand.charge_of(
        CHAT, chat_body(stream=True, text="word " * 100)
    )
    assert answer.body == b"".join(chat_events(["x"] * 50))
    assert 100 <= prompt <= 160
    assert completion == 50


FAILURES: dict[str, tuple[str, list[bytes]]] = {
    "chat": (
        CHAT,
        [
            chat_chunk(text="a"),
            event({"error": {"message": "engine died", "code": 500}}),
            DONE,
        ],
    ),
    "responses": (RESPONSES, _responses_events(["a"], end="failed")),
    "messages": (
        MESSAGES,
        [
            *_messages_events(["a"])[:2],
            event({"type": "error", "error": {"type": "api_error", "message": "no"}}, name="error"),
        ],
    ),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_an_error_inside_a_stream_passes_and_is_no_success(stand: Stand, name: str) -> None:
    """200, some text, then an error: the client reads it as it was; it counts as the engine's."""
    path, events = FAILURES[name]
    stand.engine.script = answering(stream_head() + chunked(events))
    before = await outcomes(stand.proxy.admin_url)
    answer, prompt, completion = await stand.charge_of(path, _streamed(path))
    assert answer.body == b"".join(events)
    after = await outcomes(stand.proxy.admin_url)
    assert after["engine_failed"] == before.get("engine_failed", 0) + 1
    assert after.get("completed", 0) == before.get("completed", 0)
    assert prompt > 0
    assert completion > 0


async def test_an_engine_that_is_full_says_so_itself(stand: Stand) -> None:
    """Its 503 with Retry-After passes, is sent once, and costs nothing."""
    stand.engine.script = answering(
        error_answer(503, "ServiceUnavailable", "The queue is full", retry_after="3")
    )
    sent = len(stand.engine.work)
    answer, prompt, completion = await stand.charge_of(CHAT, chat_body())
    assert (answer.status, answer.header("retry-after")) == (503, "3")
    assert answer.error["message"] == "The queue is full"
    assert (prompt, completion) == (0, 0)
    assert len(stand.engine.work) == sent + 1


@pytest.mark.parametrize(
    ("path", "body"),
    [(CHAT, b"[]"), (RESPONSES, b'{"background": true, "input": "a"}'), (MESSAGES, b"{")],
    ids=["chat", "responses-in-the-background", "messages"],
)
async def test_our_errors_speak_the_clients_dialect(stand: Stand, path: str, body: bytes) -> None:
    """400 in Anthropic's shape on its path, in OpenAI's on the others."""
    answer = await ask(stand.proxy.url, path, body)
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")
    assert answer.error["type"] == "invalid_request_error"
    assert answer.json().get("type") == ("error" if path == MESSAGES else None)


async def test_an_engine_that_restarts_with_another_context_length_is_believed(
    stand: Stand,
) -> None:
    """Nothing is remembered of what the engine was: 400 before, 200 after, its own model list."""

    def models(length: int) -> bytes:
        return json_response({"object": "list", "data": [{"id": "m", "max_model_len": length}]})

    def of(length: int, data: bytes) -> Script:
        async def run(exchange: Exchange) -> None:
            is_list = exchange.request.target == "/v1/models"
            await exchange.send(models(length) if is_list else data)

        return run

    too_long = error_answer(400, "BadRequestError", "maximum context length is 4096 tokens")
    prompt = chat_body(text="x" * 40_000)
    for length, data, status in ((4096, too_long, 400), (131_072, chat_answer(), 200)):
        await stand.engine.stop()
        stand.engine.script = of(length, data)
        await stand.engine.start()
        assert (await ask(stand.proxy.url, CHAT, prompt)).status == status
        listed = (await ask(stand.proxy.url, "/v1/models")).json()["data"]
        assert listed == [{"id": "m", "max_model_len": length}]
    stand.engine.script = chatting()


async def test_several_models_of_one_engine_are_all_served(stand: Stand) -> None:
    """Names with slashes and adapters pass; an unknown one is the engine's to refuse."""
    served = ("org/base-7b", "sql-adapter", "日本語")

    async def run(exchange: Exchange) -> None:
        seen = exchange.request
        if seen.method == "GET":
            await exchange.send(json_response({"id": seen.target}))
        elif seen.json()["model"] in served:
            await exchange.send(chat_answer())
        else:
            await exchange.send(error_answer(404, "NotFoundError", "The model does not exist"))

    stand.engine.script = probes_first(run)
    for model in served:
        assert (await ask(stand.proxy.url, CHAT, chat_body(model=model))).status == 200
    refused = await ask(stand.proxy.url, CHAT, chat_body(model="other"))
    assert (refused.status, refused.error["message"]) == (404, "The model does not exist")
    for path in ("/v1/models/org/base-7b", "/v1/models/org%2Fbase-7b"):
        assert (await ask(stand.proxy.url, path)).json() == {"id": path}


async def test_tools_and_documents_are_part_of_the_prompt(meter: Meter) -> None:
    """A schema of 8 kB reserves about 2,000 tokens more than none."""
    meter.stand.engine.script = answering(chat_answer())
    tool = {
        "type": "function",
        "function": {"name": "f", "description": "d" * 8000, "parameters": {}},
    }
    _, without, _ = await meter.cost(CHAT, chat_body())
    _, with_tool, _ = await meter.cost(CHAT, chat_body(tools=[tool]))
    assert 1900 <= with_tool - without <= 2200
