"""The load client: what one request measures, whatever the engine does to its stream."""

import json
import time
from pathlib import Path

import pytest
from giveway_simulation.demo_load import Limits
from giveway_simulation.load_client import Api, LoadClient, Target, TargetError
from giveway_simulation.load_probing import (
    EngineProbeError,
    find_model,
    fitting_limits,
    measure_text_scale,
    probe,
    read_api_key,
)
from giveway_simulation.load_records import Ending, Measured, PlannedRequest
from giveway_simulation.prompt_building import PromptWriter, TextScale

from tests.support.scripted_engine import (
    Exchange,
    Script,
    ScriptedEngine,
    answering,
    chatting,
    in_pieces,
)
from tests.support.vllm_answers import (
    LAST_CHUNK,
    chat_events,
    chunk,
    chunked,
    event,
    response,
    stream_head,
    usage,
)

TEXTS = ("one", " two", " three")


def planned(output_tokens: int = 3) -> PlannedRequest:
    return PlannedRequest(
        due_s=0.0, class_name="chat", tenant="acme", prompt_tokens=20, output_tokens=output_tokens
    )


def client_of(engine: ScriptedEngine, api: Api = Api.CHAT) -> LoadClient:
    target = Target.parse(engine.url, model="tiny", api=api)
    return LoadClient(target, prompts=PromptWriter(TextScale(), seed=1))


async def ask(script: Script, api: Api = Api.CHAT) -> Measured:
    async with ScriptedEngine(script) as engine:
        measured = Measured(planned=planned())
        await send(client_of(engine, api), measured)
        return measured


async def send(client: LoadClient, measured: Measured) -> None:
    request = client.prepare(measured.planned)
    await client.ask(measured, zero_s=time.monotonic(), request=request)


def whole_stream(*, line_end: bytes = b"\n") -> bytes:
    events = b"".join(chat_events(TEXTS, include_usage=True)).replace(b"\n", line_end)
    return stream_head() + chunk(events) + LAST_CHUNK


async def test_a_stream_is_measured_from_first_token_to_end() -> None:
    """Tokens, usage, status and the end of an ordinary chat stream are recorded."""
    measured = await ask(chatting(TEXTS))
    assert measured.ending is Ending.COMPLETED
    assert measured.status == 200
    assert len(measured.token_times_s) == 3
    assert measured.output_tokens == 3
    assert measured.end_s is not None
    assert 0 < measured.token_times_s[0] <= measured.token_times_s[-1] <= measured.end_s
    assert measured.first_token_latency_s == measured.token_times_s[0]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
async def test_any_cut_of_the_stream_gives_the_same_record(line_end: bytes) -> None:
    """All at once equals byte by byte, with either line ending."""
    data = whole_stream(line_end=line_end)
    cut = await ask(in_pieces([data[i : i + 1] for i in range(len(data))], gap_s=0))
    whole = await ask(answering(data))
    for measured in (cut, whole):
        assert measured.ending is Ending.COMPLETED
        assert len(measured.token_times_s) == 3
    assert cut.usage_output_tokens == whole.usage_output_tokens == 3
    assert cut.prompt_tokens == whole.prompt_tokens


async def test_plain_completions_are_understood() -> None:
    """The text of a completion counts like the content of a chat."""
    choices = [event({"choices": [{"index": 0, "text": text}]}) for text in TEXTS]
    last = [event({"choices": [], "usage": usage(20, 3)}), b"data: [DONE]\n\n"]
    data = stream_head() + chunked([*choices, *last])
    measured = await ask(answering(data), Api.COMPLETIONS)
    assert measured.ending is Ending.COMPLETED
    assert len(measured.token_times_s) == 3


async def test_a_refusal_keeps_status_and_message() -> None:
    """A 429 is recorded as refused, with what the server said."""
    body = json.dumps({"error": {"message": "Too many requests", "code": "rate_limited"}}).encode()
    measured = await ask(answering(response(body, status=429)))
    assert measured.ending is Ending.REFUSED
    assert (measured.status, measured.error) == (429, "Too many requests")


async def test_an_answer_whose_tokens_have_no_text_is_an_answer() -> None:
    """A short answer may be half a character: the event that ends it counts as its output."""
    data = b'data: {"choices":[{"delta":{"content":""},"finish_reason":"length"}]}\n\n'
    measured = await ask(answering(stream_head() + chunk(data) + LAST_CHUNK))
    assert measured.ending is Ending.COMPLETED
    assert len(measured.token_times_s) == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
        (
            stream_head()
            + chunk(b'data: {"error": {"message": "engine died", "code": 500}}\n\n')
            + chunk(b"data: [DONE]\n\n")
            + LAST_CHUNK,
            "engine died",
        ),
        (stream_head() + chunk(b"data: {]\n\n") + LAST_CHUNK, "not what it should be"),
        (stream_head() + chunk(b"data: [DONE]\n\n") + LAST_CHUNK, "without output"),
        (
            stream_head()
            + chunk(b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"abort"}]}\n\n')
            + LAST_CHUNK,
            "aborted",
        ),
    ],
)
async def test_a_broken_answer_is_a_failure_and_says_why(data: bytes, message: str) -> None:
    """Errors inside a 200 stream are not counted as answers."""
    measured = await ask(answering(data))
    assert measured.ending is Ending.FAILED
    assert measured.error is not None
    assert message in measured.error


async def test_a_cut_stream_is_a_failure_with_the_tokens_that_came() -> None:
    """What arrived before the connection broke stays on record."""

    async def cut(exchange: Exchange) -> None:
        await exchange.send(stream_head())
        await exchange.send_events(chat_events(TEXTS)[:2])
        exchange.close()

    measured = await ask(cut)
    assert measured.ending is Ending.FAILED
    assert len(measured.token_times_s) >= 1
    assert measured.error is not None
    assert "connection lost" in measured.error


async def test_an_engine_that_is_not_there_is_told_in_words() -> None:
    """Without numbers of errors; whoever shows it names the address."""
    async with ScriptedEngine(chatting()) as engine:
        client = client_of(engine)
    measured = Measured(planned=planned())
    await send(client, measured)
    assert measured.ending is Ending.FAILED
    assert measured.error == "cannot connect: connection refused"


async def test_a_request_says_its_class_tenant_and_lengths() -> None:
    """Headers and body carry what the plan says."""
    async with ScriptedEngine(chatting(TEXTS)) as engine:
        measured = Measured(planned=planned(output_tokens=77))
        await send(client_of(engine), measured)
        (request,) = engine.work
    assert request.header("x-giveway-class") == "chat"
    assert request.header("x-giveway-tenant") == "acme"
    body = request.json()
    assert body["max_tokens"] == 77
    assert body["stream"] is True
    messages = body["messages"]
    assert isinstance(messages, list)
    assert len(messages[0]["content"].split()) == 20


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("https://models.example/llm/v1", "https://models.example:443/llm"),
        ("http://[::1]:9", "http://[::1]:9"),
    ],
)
def test_base_addresses_are_read_with_and_without_v1(url: str, address: str) -> None:
    """What people paste from client settings works."""
    assert Target.parse(url, model="m").address == address


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:port", "http://h:99999"])
def test_what_is_no_address_is_refused(url: str) -> None:
    """Before anything is sent."""
    with pytest.raises(TargetError):
        Target.parse(url, model="m")


def counting_words(tokens_per_word: float, overhead: int, *, chat: bool = True) -> Script:
    """An engine whose tokenizer is a straight line; without `chat` it refuses chat with a 400."""

    async def run(exchange: Exchange) -> None:
        body = exchange.request.json()
        if "messages" in body and not chat:
            await exchange.send(response(b'{"error":{"message":"no chat template"}}', status=400))
            return
        text = body["messages"][0]["content"] if "messages" in body else body["prompt"]  # type: ignore[index]
        tokens = round(overhead + tokens_per_word * len(str(text).split()))
        usage = {"prompt_tokens": tokens, "completion_tokens": 1}
        content = {"delta": {"content": "x"}} if "messages" in body else {"text": "x"}
        events = [{"choices": [content]}, {"choices": [], "usage": usage}]
        await exchange.send(stream_head())
        await exchange.send_events(f"data: {json.dumps(event)}\n\n".encode() for event in events)
        await exchange.end()

    return run


async def test_prompts_get_the_length_that_the_engine_counts() -> None:
    """The text scale is measured, so that a prompt of 1,000 tokens is one for this tokenizer."""
    async with ScriptedEngine(counting_words(1.25, 11)) as engine:
        target, scale = await measure_text_scale(Target.parse(engine.url, model="m"))
        assert scale.tokens_per_word == pytest.approx(1.25, abs=0.01)
        assert scale.overhead_tokens == pytest.approx(11, abs=1)
        client = LoadClient(target, prompts=PromptWriter(scale, seed=1))
        measured = await probe(client, prompt_tokens=1000, output_tokens=1)
    assert measured.usage_prompt_tokens == pytest.approx(1000, abs=2)


async def test_a_model_without_a_chat_template_is_asked_by_plain_completions() -> None:
    """The interface that works is found by trying."""
    async with ScriptedEngine(counting_words(1.0, 0, chat=False)) as engine:
        target, _ = await measure_text_scale(Target.parse(engine.url, model="m"))
    assert target.api is Api.COMPLETIONS


async def test_the_model_is_found_and_its_absence_is_explained() -> None:
    """`--model` may be left out where the engine names its models."""
    async with ScriptedEngine(chatting()) as engine:
        assert await find_model(engine.url, api_key=None)
    with pytest.raises(EngineProbeError, match=r"^http\S+ cannot be reached: connection refused$"):
        await find_model(engine.url, api_key=None)
    with pytest.raises(EngineProbeError, match=r"^http\S+: cannot connect: connection refused$"):
        await measure_text_scale(Target.parse(engine.url, model="m"))

    async def nothing(exchange: Exchange) -> None:
        await exchange.send(response(b"<html>", content_type="text/html"))

    async with ScriptedEngine(nothing) as engine:
        with pytest.raises(EngineProbeError, match="names no model"):
            await find_model(engine.url, api_key=None)


def test_prompts_differ_from_their_first_words_and_repeat_for_a_seed() -> None:
    """No prefix cache can answer for another prompt; a run can be repeated exactly."""
    writer = PromptWriter(TextScale(), seed=3)
    texts = [writer.write(500) for _ in range(50)]
    assert len({" ".join(text.split()[:8]) for text in texts}) == 50
    assert all(len(text.split()) == 500 for text in texts)
    again = PromptWriter(TextScale(), seed=3)
    assert [again.write(500) for _ in range(50)] == texts
    assert len(writer.write(20_000).split()) == 20_000


@pytest.mark.parametrize(
    ("answer", "prompt", "output"),
    [
        # A quarter of the context for the answer, 64 tokens for the template, then the prompt.
        ({"data": [{"id": "m", "max_model_len": 2048}]}, 1472, 512),
        ({"data": [{"id": "m", "max_model_len": 100_000}]}, 8000, 1000),
        ({"data": [{"id": "m"}]}, 8000, 1000),
        ({"data": []}, 8000, 1000),
    ],
)
async def test_requests_are_made_to_fit_the_stated_context(
    answer: dict[str, object], prompt: int, output: int
) -> None:
    """An engine with a short context is loaded with short prompts, not with refusals."""

    async def run(exchange: Exchange) -> None:
        await exchange.send(response(json.dumps(answer).encode()))

    async with ScriptedEngine(run) as engine:
        target = Target.parse(engine.url, model="m")
        limits = await fitting_limits(target, Limits(prompt_tokens=8000, output_tokens=1000))
    assert (limits.prompt_tokens, limits.output_tokens) == (prompt, output)


@pytest.mark.parametrize("text", ["", "two keys", "two\nkeys", "schlüssel"])
def test_a_file_that_holds_no_key_is_refused(text: str, tmp_path: Path) -> None:
    """Before anything is sent."""
    file = tmp_path / "key"
    file.write_text(text)
    with pytest.raises(TargetError, match="does not hold one key"):
        read_api_key(file)


async def test_the_key_of_the_engine_is_sent(tmp_path: Path) -> None:
    """As bearer token, with probes and requests."""
    file = tmp_path / "key"
    file.write_text("sk-1\n")
    async with ScriptedEngine(chatting(TEXTS)) as engine:
        model = await find_model(engine.url, api_key=read_api_key(file))
        target = Target.parse(engine.url, model=model, api_key=read_api_key(file))
        await probe(LoadClient(target, prompts=PromptWriter(TextScale(), seed=1)), output_tokens=3)
        assert {each.header("authorization") for each in engine.requests} == {"Bearer sk-1"}
    with pytest.raises(TargetError, match="cannot be read"):
        read_api_key(tmp_path / "absent")
    assert read_api_key(None) is None
