"""Which headers and odd requests of clients does the proxy understand, pass on or keep back?"""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from tests.support.lines import CHAT, holders
from tests.support.policies import policy, service_class
from tests.support.proxy_fixtures import ProxyStarter, Stand
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scraping import outcomes, queued, scrape
from tests.support.scripted_engine import (
    Exchange,
    ScriptedEngine,
    answering,
    chatting,
    probes_first,
)
from tests.support.vllm_answers import chat_answer, json_response

MIB = 2**20


@pytest.mark.asyncio(loop_scope="module")
async def test_a27_long_headers_pass(stand: Stand) -> None:
    """12 KB of credential, 10 KB of cookies, 120 headers and a 10 KB answer header: all pass."""
    token, cookie, answered = "t" * 12_000, "c" * 10_000, "r" * 10_000
    many = {f"X-Number-{index}": str(index) for index in range(120)}
    stand.engine.script = answering(json_response({}, headers={"X-Long": answered}))
    answer = await ask(
        stand.proxy.url,
        CHAT,
        chat_body(),
        headers={"Authorization": f"Bearer {token}", "Cookie": cookie, **many},
    )
    seen = stand.engine.work[-1]
    assert answer.status == 200
    assert answer.header("x-long") == answered
    assert seen.header("authorization") == f"Bearer {token}"
    assert seen.header("cookie") == cookie
    assert [seen.header(name) for name in many] == list(many.values())


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "headers",
    [{"Cookie": "c" * 70_000}, {f"X-{index}": "" for index in range(300)}],
    ids=["too-long", "too-many"],
)
async def test_a27_more_than_the_limit_is_told_as_json(
    stand: Stand, headers: dict[str, str]
) -> None:
    """431 in JSON, counted, and the engine hears nothing."""
    sent = len(stand.engine.work)
    before = (await outcomes(stand.proxy.admin_url)).get("invalid_request", 0)
    answer = await ask(stand.proxy.url, CHAT, chat_body(), headers=headers)
    assert (answer.status, answer.error["code"]) == (431, "invalid_request")
    assert len(stand.engine.work) == sent
    assert (await outcomes(stand.proxy.admin_url))["invalid_request"] == before + 1


async def test_a28_a_preflight_passes_while_the_queue_is_full(start_proxy: ProxyStarter) -> None:
    """OPTIONS goes to the engine at once: no key, no seat, no token, no queue."""
    allowed = {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Methods": "POST"}
    gate = asyncio.Event()
    waits = chatting(gate=gate)

    async def run(exchange: Exchange) -> None:
        if exchange.request.method == "OPTIONS":
            await exchange.send(json_response("OK", headers=allowed))
        else:
            await waits(exchange)

    documents = [
        policy(
            classes=[service_class("only", capacity=0, limits={"tokensPerMinute": 600})],
            seats=1,
            identity={"unknownCredential": "Reject"},
        )
    ]
    async with ScriptedEngine(probes_first(run)) as engine:
        proxy = await start_proxy(engine.url, documents=documents)
        holding = await holders(proxy, engine, 1)
        assert (await ask(proxy.url, CHAT, chat_body())).status == 429
        asks = {
            "Origin": "https://chat.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, content-type",
        }
        answer = await ask(proxy.url, CHAT, method="OPTIONS", headers=asks)
        assert answer.status == 200
        assert answer.header("access-control-allow-origin") == "*"
        seen = next(each for each in engine.requests if each.method == "OPTIONS")
        assert [seen.header(name) for name in asks] == list(asks.values())
        unknown = await ask(proxy.url, "/v1/secret", method="OPTIONS", headers=asks)
        assert unknown.status == 404
        gate.set()
        await asyncio.gather(*holding)
        samples = await scrape(proxy.admin_url)
        assert samples.value("giveway_requests_arrived_total", **{"class": "only"}) == 2


@pytest.mark.asyncio(loop_scope="module")
async def test_a31_a_client_that_expects_is_told_to_go_on(stand: Stand) -> None:
    """100 comes as soon as the head is there; 2 MB then arrive whole."""
    stand.engine.script = answering(chat_answer())
    data = request("POST", CHAT, body=chat_body(text="x" * (2 * MIB)), headers=EXPECTS)
    head, _, body = data.partition(b"\r\n\r\n")
    async with await RawClient.open(stand.proxy.url) as client:
        await client.send(head + b"\r\n\r\n")
        async with asyncio.timeout(5):
            interim = await client.reader.readuntil(b"\r\n\r\n")
        assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(body)
        assert (await client.answer()).status == 200
    assert stand.engine.work[-1].body == body
    assert stand.engine.work[-1].header("expect") is None


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl: nothing is proved with it")
async def test_a31_curl_is_told_to_go_on(stand: Stand, tmp_path: Path) -> None:
    """curl holds 2 MB back for as long as it is let: for ever here, if it were not answered."""
    stand.engine.script = answering(chat_answer())
    body = tmp_path / "body"
    body.write_text(json.dumps(chat_body(text="x" * (2 * MIB))))
    curl = await asyncio.create_subprocess_exec(
        *("curl", "--silent", "--max-time", "60", "--expect100-timeout", "600"),
        *("--header", "Expect: 100-continue", "--header", "Content-Type: application/json"),
        *("--write-out", "%{http_code}", "--output", str(tmp_path / "answer")),
        *("--data-binary", f"@{body}", f"{stand.proxy.url}{CHAT}"),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await curl.communicate()
    assert said == b"200"
    assert stand.engine.work[-1].body == body.read_bytes()


EXPECTS = {"Expect": "100-continue"}


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [(CHAT, 2 * MIB, 413), ("/v1/secret", 2 * MIB, 404)],
    ids=["too-large", "no-such-path"],
)
async def test_a31_what_the_head_tells_is_refused_before_the_body(
    start_proxy: ProxyStarter, path: str, size: int, status: int
) -> None:
    """No 100 and no byte of the body: the final answer comes at once."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url, "--max-body", "1Mi")
        head = request("POST", path, body=b"x" * size, headers=EXPECTS).partition(b"\r\n\r\n")[0]
        async with await RawClient.open(proxy.url) as client:
            await client.send(head + b"\r\n\r\n")
            answer = await client.answer()
            assert answer.head.raw.startswith(b"HTTP/1.1 %d" % status)
            assert await client.read_until_close() == b""


async def test_a31_an_empty_bucket_refuses_after_the_first_part(start_proxy: ProxyStarter) -> None:
    """429 needs the class, which the body may name: told after 256 KiB of 2 MB, not after all."""
    documents = [policy(classes=[service_class("only", limits={"requestsPerMinute": 1})])]
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url, documents=documents)
        assert (await ask(proxy.url, CHAT, chat_body())).status == 200
        data = request("POST", CHAT, body=chat_body(text="x" * (2 * MIB)), headers=EXPECTS)
        async with await RawClient.open(proxy.url) as client:
            await client.send(data[: 300 * 1024])
            answer = await client.answer()
            assert (answer.status, answer.header("connection")) == (429, "close")
        assert len(engine.work) == 1


@pytest.mark.asyncio(loop_scope="module")
async def test_a32_hop_by_hop_headers_stay_on_their_side(stand: Stand) -> None:
    """Neither the client's nor the engine's cross, nor what `Connection` names; nothing doubles."""
    answer_headers = {
        "Keep-Alive": "timeout=5",
        "Connection": "close, x-bar",
        "X-Bar": "1",
        "Proxy-Authenticate": "Basic",
        "Date": "Tue, 01 Dec 2026 00:00:00 GMT",
    }
    stand.engine.script = answering(json_response({}, headers=answer_headers))
    async with await RawClient.open(stand.proxy.url) as client:
        answer = await client.post(
            CHAT,
            chat_body(),
            headers={
                "Connection": "keep-alive, x-foo",
                "X-Foo": "1",
                "TE": "trailers",
                "Trailer": "X-Sum",
                "Keep-Alive": "timeout=5",
                "Proxy-Authorization": "Basic eHg6eHg=",
                "Proxy-Connection": "keep-alive",
            },
        )
        names = [name for name, _ in answer.head.headers]
        assert (await client.post(CHAT, chat_body())).status == 200, "the engine's close is its own"
    seen = {name for name, _ in stand.engine.work[-2].headers}
    crossed = {"x-foo", "te", "trailer", "keep-alive", "proxy-authorization", "proxy-connection"}
    assert seen & crossed == set()
    assert set(names) & {"keep-alive", "x-bar", "proxy-authenticate", "connection"} == set()
    assert len(names) == len(set(names)), names
    assert not {"content-length", "transfer-encoding"} <= set(names)


@pytest.mark.asyncio(loop_scope="module")
async def test_a33_what_steers_proxies_is_set_by_the_proxy(stand: Stand) -> None:
    """Host is the engine's, the chain of addresses grows, our own control headers stay here."""
    stand.engine.script = answering(chat_answer())
    await ask(
        stand.proxy.url,
        CHAT,
        chat_body(),
        headers={
            "Host": "elsewhere.example",
            "X-Forwarded-For": "203.0.113.9",
            "X-Forwarded-Host": "a.example",
            "Via": "1.1 front",
            "X-Giveway-Drain-Token": "guess",
            "X-Giveway-Priority": "0",
            "X-Vllm-Priority": "-100",
        },
    )
    seen = stand.engine.work[-1]
    assert seen.header("host") == stand.engine.url.removeprefix("http://")
    assert seen.header("x-forwarded-for") == "203.0.113.9, 127.0.0.1"
    assert (seen.header("via"), seen.header("x-forwarded-host")) == ("1.1 front", "a.example")
    assert [name for name, _ in seen.headers if name.startswith("x-giveway-")] == []
    assert seen.header("x-vllm-priority") != "-100"


@pytest.mark.slow
async def test_a40_an_idle_connection_ends_without_losing_a_request(
    start_proxy: ProxyStarter,
) -> None:
    """Requests come just as idle connections end: answered, or closed before the engine saw them.

    300 of them, from 0.5 s before the idle time of 1 s to 0.1 s after it.
    """
    count = 300
    async with ScriptedEngine(answering(chat_answer())) as engine:
        proxy = await start_proxy(engine.url, "--keep-alive", "1", documents=[policy(seats=64)])

        async def use(place: int) -> bool:
            async with await RawClient.open(proxy.url) as client:
                await client.pause(0.5 + 0.6 * place / count)
                try:
                    return (await client.post(CHAT, chat_body(), headers=CLOSE)).status == 200
                except ConnectionError:
                    return False

        answered = await asyncio.gather(*(use(place) for place in range(count)))
        assert answered.count(True) == len(engine.work)
        assert answered.count(True) > 0
        assert answered.count(False) > 0


CLOSE = {"Connection": "close"}


async def test_a40_a_balancer_that_closes_first_never_fails(start_proxy: ProxyStarter) -> None:
    """Idle for less than our time, over and over: one connection serves them all."""
    async with ScriptedEngine(answering(chat_answer())) as engine:
        proxy = await start_proxy(engine.url, "--keep-alive", "1")
        async with await RawClient.open(proxy.url) as client:
            for _ in range(5):
                await client.pause(0.4)
                assert (await client.post(CHAT, chat_body())).status == 200
        assert len(engine.work) == 5


@pytest.mark.slow
async def test_a05_only_silence_counts_as_a_time_out(start_proxy: ProxyStarter) -> None:
    """Longer than every time-out of 3 s, in pieces: the stream and a plain answer are whole."""
    pieces = [b'{"choices":[]', *[b" " * 8] * 10, b"}"]

    async def slow(exchange: Exchange) -> None:
        body = b"".join(pieces)
        await exchange.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(body)
        )
        for piece in pieces:
            await exchange.pause(0.4)
            await exchange.send(piece)

    options = [f"--{name}-timeout=3" for name in ("header", "body", "write")]
    async with ScriptedEngine(probes_first(slow)) as engine:
        proxy = await start_proxy(
            engine.url,
            *options,
            "--keep-alive=3",
            documents=[policy(engine={"idleTimeoutSeconds": 3, "connectTimeoutSeconds": 3})],
        )
        answers = await asyncio.gather(
            ask(proxy.url, CHAT, chat_body()), ask(proxy.url, CHAT, chat_body(stream=True))
        )
        assert [(each.status, each.body) for each in answers] == [(200, b"".join(pieces))] * 2
        assert await queued(proxy.admin_url) == 0
