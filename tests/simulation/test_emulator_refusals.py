"""What the emulator refuses, with which status and which words."""

import pytest
from giveway_simulation.emulator import Emulator

from tests.simulation.conftest import StartEmulator
from tests.simulation.engine_fixtures import chat, url_of
from tests.support.raw_client import RawClient, request
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@pytest.mark.parametrize(
    ("path", "body", "kind", "parameter"),
    [
        (CHAT, b'{"a":', "Bad Request", "body.5"),
        (CHAT, b'{"a":1} x', "Bad Request", "body.8"),
        (CHAT, b"", "Bad Request", "body"),
        (CHAT, b"[1]", "Bad Request", "body"),
        (CHAT, {}, "Bad Request", "body.messages"),
        (CHAT, {"messages": "x"}, "Bad Request", "body.messages"),
        (CHAT, chat() | {"messages": []}, "BadRequestError", None),
        (CHAT, chat() | {"max_tokens": "x"}, "Bad Request", "body.max_tokens"),
        (CHAT, chat(priority="x"), "Bad Request", "body.priority"),
        (CHAT, chat(priority=1.5), "Bad Request", "body.priority"),
        (CHAT, chat(stream="perhaps"), "Bad Request", "body.stream"),
        (CHAT, chat(temperature=-1), "BadRequestError", "temperature"),
        (CHAT, chat(max_tokens=0), "BadRequestError", "max_tokens"),
        (CHAT, chat(max_tokens=100_000), "BadRequestError", "max_tokens"),
        (CHAT, chat(n=0), "BadRequestError", None),
        (CHAT, chat(n=100_000), "BadRequestError", None),
        (CHAT, chat(stream_options={"include_usage": True}), "BadRequestError", "stream_options"),
        (CHAT, chat(text="word" * 4096), "BadRequestError", "input_tokens"),
        (COMPLETIONS, {"prompt": ""}, "BadRequestError", "prompt"),
        (COMPLETIONS, {}, "BadRequestError", "prompt"),
        ("/v1/embeddings", {"input": []}, "BadRequestError", None),
    ],
)
async def test_bad_request_gets_400_that_names_the_field(
    emulator: Emulator, path: str, body: object, kind: str, parameter: str | None
) -> None:
    """Types and parameters as recorded from vLLM 0.32."""
    async with await RawClient.open(url_of(emulator)) as client:
        answer = await client.post(path, body)
        error = answer.error
        # The connection goes on.
        assert (await client.get("/health")).status == 200
    assert (answer.status, error["code"]) == (400, 400)
    assert (error["type"], error["param"]) == (kind, parameter)
    assert error["message"]


async def test_messages_have_their_own_error_form_but_for_validation(emulator: Emulator) -> None:
    """vLLM's own inconsistency: a missing field has OpenAI's form there too."""
    async with await RawClient.open(url_of(emulator)) as client:
        unknown = await client.post("/v1/messages", chat(model="nope"))
        missing = await client.post("/v1/messages", {"max_tokens": 3})
    assert unknown.status == 404
    assert unknown.json()["type"] == "error"
    assert unknown.error["type"] == "NotFoundError"
    assert missing.error["param"] == "body.messages"
    assert "type" not in missing.json()


async def test_wrong_content_type_is_400(emulator: Emulator) -> None:
    """JSON alone is read."""
    async with await RawClient.open(url_of(emulator)) as client:
        answer = await client.post(CHAT, chat(), headers={"Content-Type": "text/plain"})
    assert answer.status == 400
    assert "Unsupported Media Type" in str(answer.error["message"])


async def test_paths_and_methods_that_are_not_there(emulator: Emulator) -> None:
    """404 and 405 with `detail`, and the methods that would be right."""
    async with await RawClient.open(url_of(emulator)) as client:
        assert (await client.get("/nope")).json() == {"detail": "Not Found"}
        answer = await client.get(CHAT)
    assert answer.status == 405
    assert answer.header("allow") == "POST"
    assert answer.json() == {"detail": "Method Not Allowed"}


async def test_full_queue_is_503_without_retry_after_and_is_counted(
    start_emulator: StartEmulator,
) -> None:
    """One seat, a queue of one: the third request is refused at once."""
    emulator = await start_emulator(step_ms=20.0, seats=1, max_num_queued_reqs=1)
    url = url_of(emulator)
    async with (
        await RawClient.open(url) as first,
        await RawClient.open(url) as second,
        await RawClient.open(url) as third,
    ):
        await first.send(request("POST", CHAT, body=chat(max_tokens=50)))
        await until(lambda: emulator.engine.statistics().running == 1, what="one runs")
        await second.send(request("POST", CHAT, body=chat(max_tokens=1)))
        await until(lambda: emulator.engine.statistics().waiting == 1, what="one waits")
        answer = await third.post(CHAT, chat())
        metrics = (await third.get("/metrics")).body.decode()
    assert answer.status == 503
    assert answer.header("retry-after") is None
    assert answer.error["type"] == "Service Unavailable"
    counted = 'admission_rejections_total{model_name="emulated",reason="max_num_queued_reqs"} 1.0'
    assert f"vllm:{counted}\n" in metrics


async def test_nonsense_instead_of_http_is_400_and_a_closed_connection(emulator: Emulator) -> None:
    """As uvicorn answers it."""
    async with await RawClient.open(url_of(emulator)) as client:
        await client.send(b"\x16\x03\x01\x02\x00\r\n\r\n")
        data = await client.read_until_close()
    assert data.startswith(b"HTTP/1.1 400 ")
