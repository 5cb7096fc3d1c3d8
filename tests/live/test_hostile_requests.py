"""Can a client make the proxy disagree with the engine, reach elsewhere, or pass unmetered?"""

import pytest

from tests.support.proxy_fixtures import Stand
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scripted_engine import ScriptedEngine, answering, chatting
from tests.support.vllm_answers import chat_answer, json_response, response
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = "/v1/chat/completions"
_SMUGGLED = b"POST /v1/smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


def _post(*headers: bytes, body: bytes = b"") -> bytes:
    head = [b"POST " + CHAT.encode() + b" HTTP/1.1", b"Host: proxy", *headers]
    return b"\r\n".join([*head, b"Content-Type: application/json", b"", b""]) + body


SMUGGLING = {
    "length-and-chunked": _post(
        b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n" + _SMUGGLED
    ),
    "two-lengths": _post(b"Content-Length: 2", b"Content-Length: 60", body=b"{}" + _SMUGGLED),
    "space-before-colon": _post(b"Content-Length : 2", body=b"{}" + _SMUGGLED),
    "chunked-then-identity": _post(
        b"Transfer-Encoding: chunked, identity", body=b"2\r\n{}\r\n0\r\n\r\n" + _SMUGGLED
    ),
    "xchunked": _post(b"Transfer-Encoding: xchunked", body=b"2\r\n{}\r\n0\r\n\r\n" + _SMUGGLED),
    "two-encodings": _post(
        b"Transfer-Encoding: identity",
        b"Transfer-Encoding: chunked",
        body=b"2\r\n{}\r\n0\r\n\r\n" + _SMUGGLED,
    ),
    "newline-in-chunk-extension": _post(
        b"Transfer-Encoding: chunked", body=b"2;\nxx\r\n{}\r\n0\r\n\r\n" + _SMUGGLED
    ),
    "folded-header": _post(
        b"X-A: b\r\n Transfer-Encoding: chunked", b"Content-Length: 2", body=b"{}" + _SMUGGLED
    ),
    "bare-cr-in-header": _post(b"X-A: b\rContent-Length: 2", body=_SMUGGLED),
    "nul-in-header": _post(b"X-A: a\0b", b"Content-Length: 2", body=b"{}" + _SMUGGLED),
    "bare-lf-lines": _post(b"Content-Length: 2", body=b"{}").replace(b"\r\n", b"\n") + _SMUGGLED,
    "negative-chunk": _post(b"Transfer-Encoding: chunked", body=b"-1\r\n{}\r\n" + _SMUGGLED),
    "hex-prefix-chunk": _post(
        b"Transfer-Encoding: chunked", body=b"0x2\r\n{}\r\n0\r\n\r\n" + _SMUGGLED
    ),
    "chunk-longer-than-said": _post(
        b"Transfer-Encoding: chunked", body=b"2\r\n{}{}\r\n0\r\n\r\n" + _SMUGGLED
    ),
}


@pytest.mark.parametrize("name", SMUGGLING)
async def test_a35_an_ambiguous_request_smuggles_nothing(stand: Stand, name: str) -> None:
    """A35: 400 and close; the engine sees no request at all."""
    stand.engine.script = answering(json_response({}))
    seen = len(stand.engine.work)
    async with await RawClient.open(stand.proxy.url) as client:
        await client.send(SMUGGLING[name])
        head = await client.read_head()
        rest = await client.read_until_close()
    assert head.status == 400, head.raw
    assert b"HTTP/1.1" not in rest
    assert len(stand.engine.work) == seen


LENGTHS = ("", "+5", "-1", "5 5", "0x5", "99999999999999999999", "5;", "5a", "1e3")


@pytest.mark.parametrize("length", LENGTHS, ids=[repr(length) for length in LENGTHS])
async def test_a36_odd_lengths_are_refused(stand: Stand, length: str) -> None:
    """A36: a Content-Length that is no number is 400 (too large a one may be 413)."""
    seen = len(stand.engine.work)
    async with await RawClient.open(stand.proxy.url) as client:
        await client.send(_post(f"Content-Length: {length}".encode(), body=b"{}{}{}"))
        head = await client.read_head()
        await client.read_until_close()
    assert head.status in (400, 413), head.raw
    assert len(stand.engine.work) == seen


async def test_a36_a_repeated_equal_length_is_refused_or_folded(stand: Stand) -> None:
    """A36: `5,5` is 400, or the one length 5."""
    stand.engine.script = answering(chat_answer())
    async with await RawClient.open(stand.proxy.url) as client:
        await client.send(_post(b"Content-Length: 2,2", body=b"{}"))
        assert (await client.read_head()).status in (200, 400)


CONTROL = (
    "/metrics",
    "/load",
    "/scale_elastic_ep",
    "/is_scaling_elastic_ep",
    "/invocations",
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/collective_rpc",
    "/server_info",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/inference/v1/generate",
    "/kv_event_sources",
    "/generative_scoring",
    "/start_profile",
    "/abort_requests",
    "/docs",
    "/openapi.json",
    "/config",
    "/queue",
    "/debug",
    "/healthz",
    "/status",
    "/drain",
    "/v1/unknown",
    "/V1/chat/completions",
    "/v1/chat/completions/",
    "//v1/chat/completions",
    "/v1/../metrics",
    "/v1/%2e%2e/metrics",
    "/v1/models/../../metrics",
    "/v1/responses/..%2f..%2fmetrics",
)


@pytest.mark.parametrize("path", CONTROL)
async def test_g06_paths_that_are_not_for_clients_are_refused(stand: Stand, path: str) -> None:
    """G06, G04: the engine's control paths and unknown ones are 404 in JSON; nothing forwarded."""
    stand.engine.script = answering(json_response({}))
    seen = len(stand.engine.requests)
    for method in ("GET", "POST"):
        answer = await ask(stand.proxy.url, path, {}, method=method)
        assert answer.status in (404, 405), (method, answer)
        assert answer.error["code"] == "not_found"
    probes = [seen.target for seen in stand.engine.requests[seen:]]
    assert path not in probes or path in ("/metrics", "/health", "/version")


METERED = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/score",
    "/score",
    "/v1/rerank",
    "/rerank",
    "/pooling",
    "/classify",
    "/tokenize",
    "/v1/messages/count_tokens",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
)


@pytest.mark.parametrize("path", METERED)
async def test_g06_every_working_path_is_metered(stand: Stand, path: str) -> None:
    """G06: whatever makes the engine work goes in a class, or is refused."""
    stand.engine.script = answering(json_response({"usage": {"prompt_tokens": 1}}))
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    answer = await ask(stand.proxy.url, path, body | {"prompt": "x", "input": "x"})
    if answer.status == 404:
        assert answer.error["code"] == "not_found"
    else:
        assert answer.status == 200
        assert answer.header("x-giveway-class") == "realtime"


ELSEWHERE = {
    "absolute-form": b"GET http://169.254.169.254/latest/meta-data HTTP/1.1\r\nHost: a\r\n\r\n",
    "absolute-form-known-path": b"GET http://169.254.169.254/v1/models HTTP/1.1\r\nHost: a\r\n\r\n",
    "connect": b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    "double-slash": b"GET //169.254.169.254/v1/models HTTP/1.1\r\nHost: a\r\n\r\n",
    "at-sign": b"GET @169.254.169.254/v1/models HTTP/1.1\r\nHost: a\r\n\r\n",
    "trace": b"TRACE /v1/models HTTP/1.1\r\nHost: a\r\n\r\n",
    "upgrade": (
        b"GET /v1/models HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    ),
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("name", ELSEWHERE)
async def test_g08_only_the_engine_is_ever_contacted(stand: Stand, name: str) -> None:
    """G08: targets that name another host are refused, or sent to the engine's own path."""
    stand.engine.script = answering(json_response({"object": "list", "data": []}))
    async with await RawClient.open(stand.proxy.url) as client:
        await client.send(ELSEWHERE[name])
        client.half_close()
        data = await client.read_until_close()
    status = int(data.split(b" ", 2)[1]) if data else 0
    assert status == 0 or status == 200 or 400 <= status < 500, data
    allowed = ("/v1/models", "/health", "/metrics", "/version")
    assert all(seen.target in allowed for seen in stand.engine.requests if seen.method == "GET")
    assert all("169.254" not in (seen.header("host") or "") for seen in stand.engine.requests)


async def test_g08_names_of_other_hosts_in_headers_change_nothing(stand: Stand) -> None:
    """G08, A33: Host for the engine is the engine's, whatever the client says."""
    stand.engine.script = answering(chat_answer())
    headers = {"Host": "169.254.169.254", "X-Forwarded-Host": "evil", "Forwarded": "host=evil"}
    body = chat_body() | {"api_base": "http://169.254.169.254/"}
    answer = await ask(stand.proxy.url, CHAT, body, headers=headers)
    assert answer.status == 200
    seen = stand.engine.work[-1]
    assert seen.header("host") == stand.engine.url.removeprefix("http://")


async def test_g08_redirects_are_returned_and_not_followed(stand: Stand) -> None:
    """G08: a 302 of the engine goes to the client; the other place hears nothing."""
    async with ScriptedEngine(chatting()) as elsewhere:
        location = {"Location": f"{elsewhere.url}/secret"}
        stand.engine.script = answering(response(b"", status=302, reason="Found", headers=location))
        answer = await ask(stand.proxy.url, CHAT, chat_body())
        assert answer.status == 302
        assert answer.header("location") == location["Location"]
        assert elsewhere.connections == []


async def test_pipelined_requests_are_answered_in_order(stand: Stand) -> None:
    """Three requests in one segment get three answers in order."""
    stand.engine.script = chatting()
    data = b"".join(
        request("POST", CHAT, body=chat_body(text=text)) for text in ("one", "two", "three")
    )
    async with await RawClient.open(stand.proxy.url) as client:
        await client.send(data)
        answers = [await client.answer() for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert [b"one" in seen.body for seen in stand.engine.work[-3:]] == [True, False, False]
    await until(lambda: stand.engine.busy == 0, what="the engine is free")
