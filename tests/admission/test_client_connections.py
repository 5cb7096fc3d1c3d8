"""How do bytes on the data port become requests?"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from giveway_admission.settings import ProxySettings

from tests.admission.data_plane import CHAT, LOCAL, is_empty, posted, queued, running
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scripted_engine import ScriptedEngine, answering, chatting, silent
from tests.support.vllm_answers import chat_answer
from tests.support.waiting import holds_for, until

LARGE = 700_000
"""More than the 256 KiB that are held of a waiting request."""


def large_body(size: int = LARGE) -> bytes:
    return b'{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"%b"}]}' % (
        b"x" * size
    )


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_a_request_sent_byte_by_byte_equals_one_sent_at_once(
    tmp_path: Path, *, chunked: bool
) -> None:
    """Where TCP cuts a request makes no difference to what the engine gets."""
    async with (
        ScriptedEngine(answering(chat_answer())) as engine,
        running(engine.url, tmp_path) as server,
    ):
        data = request("POST", CHAT, body=chat_body(max_tokens=3), chunked=chunked)
        for pieces in ([data], bytewise(data)):
            async with await RawClient.open(server.data_url) as client:
                await client.send_pieces(pieces, gap_s=0)
                assert (await client.answer()).status == 200
        first, second = engine.work
        assert first.body == second.body
        assert first.header("content-length") == str(len(first.body))
        assert first.header("transfer-encoding") is None
        assert [name for name, _ in first.headers] == [name for name, _ in second.headers]


async def test_requests_sent_ahead_reach_the_engine_one_at_a_time(tmp_path: Path) -> None:
    """Pipelining: 50 requests in one write are answered in order, never two at the engine."""
    async with ScriptedEngine(chatting(["a"])) as engine, running(engine.url, tmp_path) as server:
        bodies = [chat_body(text=f"number {index}") for index in range(50)]
        sent = b"".join(request("POST", CHAT, body=body) for body in bodies)
        async with await RawClient.open(server.data_url) as client:
            await client.send(sent)
            answers = [await client.answer() for _ in bodies]
        assert [answer.status for answer in answers] == [200] * 50
        assert engine.most_busy == 1
        assert [seen.json()["messages"] for seen in engine.work] == [
            body["messages"] for body in bodies
        ]


async def test_much_sent_ahead_stays_in_the_socket(tmp_path: Path) -> None:
    """While one request runs, at most 64 KiB and one read of what follows it are held."""
    gate = asyncio.Event()
    async with (
        ScriptedEngine(chatting(gate=gate)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        one = request("POST", CHAT, body=chat_body(text="y" * 10_000))
        async with await RawClient.open(server.data_url) as client:
            sending = asyncio.ensure_future(client.send(one * 300))
            await until(lambda: engine.busy == 1, what="the first is at the engine")
            (connection,) = server.proxy.connections
            await until(lambda: connection.held_ahead_bytes > 64 * 1024, what="it is full")
            assert connection.held_ahead_bytes < 64 * 1024 + 256 * 1024
            gate.set()
            answers = [await client.answer() for _ in range(300)]
            await sending
        assert {answer.status for answer in answers} == {200}


async def test_what_follows_a_chunked_body_in_one_packet_is_sent_again_by_the_client(
    tmp_path: Path,
) -> None:
    """The first request is served and its answer says close; nothing of the second is guessed."""
    async with ScriptedEngine(chatting()) as engine, running(engine.url, tmp_path) as server:
        first = request("POST", CHAT, body=chat_body(), chunked=True)
        async with await RawClient.open(server.data_url) as client:
            await client.send(first + request("POST", CHAT, body=chat_body()))
            answer = await client.answer()
            assert answer.status == 200
            assert answer.header("connection") == "close"
            assert await client.read_until_close() == b""
        assert len(engine.work) == 1


async def test_a31_expect_continue_is_answered_at_once(tmp_path: Path) -> None:
    """A31: the go-ahead comes before the body, and then the answer."""
    async with ScriptedEngine(chatting()) as engine, running(engine.url, tmp_path) as server:
        data = request("POST", CHAT, body=chat_body(), headers={"Expect": "100-continue"})
        head, _, body = data.partition(b"\r\n\r\n")
        async with await RawClient.open(server.data_url) as client:
            await client.send(head + b"\r\n\r\n")
            assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send(body)
            assert (await client.answer()).status == 200
        assert engine.work[0].header("expect") is None


@pytest.mark.parametrize(
    ("path", "length", "status"), [(CHAT, 10**9, 413), ("/nope", 5, 404)], ids=["413", "404"]
)
async def test_a31_a_refusal_comes_before_the_body(
    tmp_path: Path, path: str, length: int, status: int
) -> None:
    """A31: a client that waits for the go-ahead is refused without having sent its body."""
    async with ScriptedEngine(chatting()) as engine, running(engine.url, tmp_path) as server:
        async with await RawClient.open(server.data_url) as client:
            await client.send(
                b"POST %b HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
                % (path.encode(), length)
            )
            answer = await client.answer()
            assert answer.status == status
            assert answer.header("connection") == "close"
            assert await client.read_until_close() == b""
        assert engine.work == []


@pytest.mark.parametrize(
    ("sent", "settings", "status"),
    [
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost",
            replace(LOCAL, header_timeout_s=0.05),
            408,
        ),
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{",
            replace(LOCAL, body_timeout_s=0.05),
            408,
        ),
        (b"", replace(LOCAL, keep_alive_s=0.05), None),
    ],
    ids=["head", "body", "idle"],
)
async def test_who_is_too_slow_is_cut(
    tmp_path: Path, sent: bytes, settings: ProxySettings, status: int | None
) -> None:
    """Heads, bodies and idle connections have their time; who has begun to ask hears of it."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=settings) as server,
    ):
        async with await RawClient.open(server.data_url) as client:
            await client.send(sent)
            rest = await client.read_until_close()
        if status is None:
            assert rest == b""
        else:
            assert rest.startswith(b"HTTP/1.1 %d " % status)
            assert rest.endswith(b'"code":"invalid_request"}}')
        await is_empty(server)
        assert engine.work == []


@pytest.mark.parametrize(
    "headers",
    [{f"X-{index}": "v" for index in range(300)}, {"Cookie": "c" * 70_000}],
    ids=["many", "long"],
)
async def test_a27_too_large_heads_are_refused_as_json(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    """A27: 431 with our error JSON, and it is counted."""
    async with ScriptedEngine(chatting()) as engine, running(engine.url, tmp_path) as server:
        answer = await ask(server.data_url, CHAT, chat_body(), headers=headers)
        assert answer.status == 431
        assert answer.error["code"] == "invalid_request"
        assert server.metrics.progress("none").outcomes == {"invalid_request": 1}
        assert engine.work == []


async def test_a27_large_heads_within_the_limit_are_forwarded(tmp_path: Path) -> None:
    """A27: a 12 KB Authorization, a 10 KB cookie and 120 headers pass."""
    headers = {f"X-{index}": "v" for index in range(117)}
    headers |= {"Authorization": "Bearer " + "t" * 12_000, "Cookie": "c" * 10_000}
    async with ScriptedEngine(chatting()) as engine, running(engine.url, tmp_path) as server:
        assert (await ask(server.data_url, CHAT, chat_body(), headers=headers)).status == 200
        seen = engine.work[0]
        assert seen.header("cookie") == "c" * 10_000
        assert seen.header("x-116") == "v"


async def test_an_http_1_0_client_gets_a_plain_body_and_a_close(tmp_path: Path) -> None:
    """Chunks are taken apart for a client that does not know them; the end is the close."""
    async with (
        ScriptedEngine(chatting(["a", "b"])) as engine,
        running(engine.url, tmp_path) as server,
    ):
        body = b'{"model":"m","stream":true,"messages":[]}'
        async with await RawClient.open(server.data_url) as client:
            await client.send(
                b"POST %b HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b"
                % (CHAT.encode(), len(body), body)
            )
            head = await client.read_head()
            rest = await client.read_until_close()
        assert head.header("transfer-encoding") is None
        assert head.header("connection") == "close"
        assert rest.startswith(b"data: {")
        assert rest.endswith(b"\n\ndata: [DONE]\n\n")


async def test_an_offer_of_http_2_is_left_unanswered(tmp_path: Path) -> None:
    """Java's client offers h2c with every request; it is served in HTTP/1.1."""
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AA"}
    async with ScriptedEngine(chatting()) as engine, running(engine.url, tmp_path) as server:
        answer = await ask(server.data_url, CHAT, chat_body(), headers=headers)
        assert answer.status == 200
        assert engine.work[0].header("upgrade") is None
        assert engine.work[0].header("http2-settings") is None


async def test_a28_preflight_passes_while_all_seats_are_taken(tmp_path: Path) -> None:
    """A28: OPTIONS is answered by the engine at once and takes no seat."""
    async with ScriptedEngine(silent()) as engine, running(engine.url, tmp_path) as server:
        clients = [await posted(server.data_url) for _ in range(6)]
        await until(lambda: queued(server) == 2, what="two wait")
        engine.script = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK")
        headers = {"Origin": "http://a", "Access-Control-Request-Method": "POST"}
        answer = await ask(server.data_url, CHAT, headers=headers, method="OPTIONS")
        assert (answer.status, answer.body) == (200, b"OK")
        assert answer.header("x-giveway-class") is None
        for client in clients:
            await client.close()
        await is_empty(server)


async def test_empty_lines_before_a_request_hold_nothing_and_begin_nothing(
    tmp_path: Path,
) -> None:
    """256 KiB of line ends are no head: nothing of them is kept, and a request may follow."""
    settings = replace(LOCAL, header_timeout_s=0.05)
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=settings) as server,
        await RawClient.open(server.data_url) as client,
    ):
        await client.send(b"\r\n" * 2**17)
        await holds_for(
            lambda: len(server.proxy.connections) == 1, what="no head is late", for_s=0.15
        )
        assert (await client.post(CHAT, chat_body())).status == 200


async def test_one_connection_too_many_is_told_so(tmp_path: Path) -> None:
    """Over the limit of connections: 429 and a close; a place that becomes free can be used."""
    settings = replace(LOCAL, maximum_connections=2)
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=settings) as server,
    ):
        first = await RawClient.open(server.data_url)
        second = await RawClient.open(server.data_url)
        await until(lambda: len(server.proxy.connections) == 2, what="both are known")
        async with await RawClient.open(server.data_url) as third:
            answer = await third.answer()
            assert (answer.status, answer.header("retry-after")) == (429, "1")
            assert await third.read_until_close() == b""
        await first.close()
        await until(lambda: len(server.proxy.connections) == 1, what="there is a place")
        assert (await second.post(CHAT, chat_body())).status == 200
        await second.close()


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_a_large_body_waits_in_its_socket_and_then_streams_through(
    tmp_path: Path, *, chunked: bool
) -> None:
    """Of 4 MB little is held while the request waits; the engine gets all of it, byte for byte."""
    gate = asyncio.Event()
    async with (
        ScriptedEngine(chatting(gate=gate)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        before = [await posted(server.data_url) for _ in range(4)]
        await until(lambda: engine.busy == 4, what="all seats are taken")
        body = large_body(4_000_000)
        async with await RawClient.open(server.data_url) as client:
            data = request("POST", CHAT, body=body, chunked=chunked)
            sending = asyncio.ensure_future(client.send(data))
            await until(lambda: queued(server) == 1, what="it waits")
            assert server.statistics().queued_bytes < 1_000_000
            gate.set()
            assert (await client.answer()).status == 200
            await sending
            assert (await client.post(CHAT, chat_body())).status == 200
        assert engine.work[4].body == body
        for other in before:
            await other.close()
        await is_empty(server)


@pytest.mark.parametrize("leave", ["close", "reset"])
async def test_who_leaves_with_an_unread_body_is_noticed(tmp_path: Path, leave: str) -> None:
    """A03, C07: although nothing is read from it, the request leaves the queue at once."""
    async with ScriptedEngine(silent()) as engine, running(engine.url, tmp_path) as server:
        before = [await posted(server.data_url) for _ in range(4)]
        await until(lambda: engine.busy == 4, what="all seats are taken")
        client = await RawClient.open(server.data_url)
        sent = request("POST", CHAT, body=large_body(2_000_000))[:LARGE]
        await client.send(sent)
        await until(lambda: queued(server) == 1, what="it waits")
        if leave == "reset":
            client.reset()
        await client.close()
        await until(lambda: queued(server) == 0, what="it is gone")
        assert len(engine.work) == 4
        for other in before:
            await other.close()
        await is_empty(server)


async def test_a_body_longer_than_allowed_is_found_out_on_the_way(tmp_path: Path) -> None:
    """A08: a chunked body over the limit: 413, also if the engine has begun to take it."""
    settings = replace(LOCAL, maximum_body_bytes=1_000_000)
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=settings) as server,
    ):
        async with await RawClient.open(server.data_url) as client:
            sending = asyncio.ensure_future(
                client.send(request("POST", CHAT, body=large_body(3_000_000), chunked=True))
            )
            answer = await client.answer()
            assert answer.status == 413
            assert answer.error["code"] == "request_too_large"
            await asyncio.gather(sending, return_exceptions=True)
        await is_empty(server)
        assert engine.work == []
        assert server.metrics.progress("realtime").outcomes == {"request_too_large": 1}


async def test_a_broken_chunk_in_a_large_body_ends_the_request(tmp_path: Path) -> None:
    """A35: framing that breaks behind the first 256 KiB: 400, and the engine is cut off."""
    async with ScriptedEngine(chatting()) as engine, running(engine.url, tmp_path) as server:
        async with await RawClient.open(server.data_url) as client:
            head = (
                b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % CHAT.encode()
            )
            part = large_body()[:400_000]
            await client.send(head + b"%x\r\n%b\r\n" % (len(part), part))
            await until(lambda: server.statistics().running == 1, what="it is at the engine")
            await client.send(b"5\nabcde\r\n0\r\n\r\n")
            answer = await client.answer()
            assert answer.status == 400
        await is_empty(server)
        assert engine.work == []
