"""What do odd heads and methods get: duplicates, compressed bodies, HEAD, OPTIONS, Expect?"""

import asyncio
import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from tests.admission.data_plane import CHAT, LOCAL, is_empty, running
from tests.hostile.strict_engine import StrictEngine, seen_by_client
from tests.support.policies import policy, tenant
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scripted_engine import Exchange, ScriptedEngine, chatting, probes_first

PREFLIGHT = {
    "Origin": "https://app.example",
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}


@pytest.mark.parametrize("name", ["X-Giveway-Class", "x-giveway-class"])
async def test_a_class_that_is_asked_for_twice_is_none(tmp_path: Path, name: str) -> None:
    """Neither the first nor the last is taken: the two together are no class's name."""
    async with StrictEngine() as engine, running(engine.url, tmp_path) as server:
        data = request("POST", CHAT, body=chat_body(), headers={"X-Giveway-Class": "batch"})
        data = data.replace(b"\r\nX-G", b"\r\n" + name.encode() + b": standard\r\nX-G", 1)
        async with await RawClient.open(server.data_url) as client:
            await client.send(data)
            answer = await client.answer()
        assert answer.status == 200
        assert answer.header("x-giveway-class") == "realtime", "as if nothing had been asked"
        assert engine.faults == []


async def test_two_keys_are_no_key(tmp_path: Path) -> None:
    """A second Authorization does not add the rights of its owner to the first."""
    documents = [
        policy(identity={"unknownCredential": "Reject"}),
        tenant("rich", maximum_class="realtime", keys=["key-of-rich"], folder=tmp_path),
        tenant("poor", maximum_class="batch", keys=["key-of-poor"], folder=tmp_path),
    ]
    async with StrictEngine() as engine, running(engine.url, tmp_path, *documents) as server:
        for first, second in (("key-of-poor", "key-of-rich"), ("key-of-rich", "key-of-poor")):
            data = request(
                "POST", CHAT, body=chat_body(), headers={"Authorization": f"Bearer {first}"}
            )
            more = f"\r\nauthorization: Bearer {second}\r\nAuth".encode()
            async with await RawClient.open(server.data_url) as client:
                await client.send(data.replace(b"\r\nAuth", more, 1))
                answer = await client.answer()
            assert answer.status == 401, answer
        assert engine.requests == []


async def test_every_copy_of_a_header_reaches_the_engine_in_order(tmp_path: Path) -> None:
    """Cookies and unknown headers that come twice stay twice; Host and lengths never do."""
    async with StrictEngine() as engine, running(engine.url, tmp_path) as server:
        data = request("POST", CHAT, body=chat_body(), headers={"X-A": "1"})
        data = data.replace(b"\r\nX-A: 1", b"\r\nX-A: 1\r\nCookie: a\r\nx-a: 2\r\nCookie: b", 1)
        async with await RawClient.open(server.data_url) as client:
            await client.send(data)
            assert (await client.answer()).status == 200
        (seen,) = engine.requests
        assert seen.values(b"x-a") == [b"1", b"2"]
        assert seen.values(b"cookie") == [b"a", b"b"]
        assert len(seen.values(b"host")) == 1
        assert engine.faults == []


CODINGS = ("gzip", "GZIP", "x-gzip", "deflate", "br", "zstd", "compress", "identity, gzip")


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings", "/v1/audio/transcriptions"])
async def test_a_compressed_body_is_refused_by_name(tmp_path: Path, path: str, coding: str) -> None:
    """415 before anything is read of it: nobody could judge it, and vLLM does not unpack it."""
    async with StrictEngine() as engine, running(engine.url, tmp_path) as server:
        body = gzip.compress(b'{"model":"m"}')
        answer = await ask(
            server.data_url, path, body, headers={"Content-Encoding": coding}, method="POST"
        )
        assert (answer.status, answer.error["code"]) == (415, "invalid_request")
        assert "ompressed" in str(answer.error["message"])
        assert engine.requests == []


@pytest.mark.parametrize("coding", ["identity", "utf-8", ""])
async def test_what_is_no_compression_passes(tmp_path: Path, coding: str) -> None:
    """Some clients name a character set there; the engine never minded."""
    async with StrictEngine() as engine, running(engine.url, tmp_path) as server:
        answer = await ask(server.data_url, CHAT, chat_body(), headers={"Content-Encoding": coding})
        assert answer.status == 200


async def test_head_has_no_body_and_keeps_the_connection_in_step(tmp_path: Path) -> None:
    """Of the engine's answer and of ours, between other requests on one connection."""
    async with StrictEngine() as engine, running(engine.url, tmp_path) as server:
        sent = [
            request("GET", "/v1/models?1"),
            request("HEAD", CHAT),
            request("HEAD", "/nowhere"),
            request("GET", "/v1/models?2", headers={"Connection": "close"}),
        ]
        async with await RawClient.open(server.data_url) as client:
            await client.send(b"".join(sent))
            data = await client.read_until_close()
        parts = data.split(b"HTTP/1.1 ")[1:]
        assert [int(part[:3]) for part in parts] == [200, 405, 404, 200]
        for part in parts[1:3]:
            assert part.endswith(b"\r\n\r\n"), "no body"
            assert b"Content-Length: " in part, "of what GET would have brought"
        assert b"Allow: POST\r\n" in parts[1]
        assert [seen.target for seen in engine.requests] == [b"/v1/models?1", b"/v1/models?2"]


async def test_a_preflight_is_the_engines_to_answer(tmp_path: Path) -> None:
    """Unmetered and as it came, on every path that clients may reach; elsewhere it is 404."""

    async def allowing(exchange: Exchange) -> None:
        await exchange.send(
            b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: https://app.example\r\n"
            b"Access-Control-Allow-Methods: POST\r\nContent-Length: 2\r\n\r\nOK"
        )

    async with (
        ScriptedEngine(probes_first(allowing)) as engine,
        running(engine.url, tmp_path) as server,
    ):
        for path in (CHAT, "/v1/embeddings", "/v1/messages", "/v1/models/m"):
            answer = await ask(server.data_url, path, method="OPTIONS", headers=PREFLIGHT)
            assert answer.status == 200
            assert answer.header("access-control-allow-origin") == "https://app.example"
            seen = [one for one in engine.requests if one.method == "OPTIONS"][-1]
            for name, value in PREFLIGHT.items():
                assert seen.header(name) == value
        count = sum(one.method == "OPTIONS" for one in engine.requests)
        for path in ("/metrics", "/nowhere"):
            refused = await ask(server.data_url, path, method="OPTIONS", headers=PREFLIGHT)
            assert refused.status == 404
        async with await RawClient.open(server.data_url) as client:
            await client.send(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await client.answer()).status == 404
        assert sum(one.method == "OPTIONS" for one in engine.requests) == count
        await is_empty(server)


async def test_expect_is_heeded_in_any_spelling_and_never_waited_for(tmp_path: Path) -> None:
    """In capitals; from a client that sends its body at once; before an empty body; from 1.0."""
    async with StrictEngine() as engine, running(engine.url, tmp_path) as server:
        head = b"POST %b HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: %d\r\n\r\n"
        async with await RawClient.open(server.data_url) as client:
            await client.send(head % (CHAT.encode(), 2))
            assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send(b"{}")
            assert (await client.answer()).status == 200
            await client.send(head % (CHAT.encode(), 2) + b"{}")
            line = await client.reader.readline()
            assert line.startswith(b"HTTP/1.1 200"), "no go-ahead for what is here already"
        async with await RawClient.open(server.data_url) as client:
            await client.send(head % (b"/v1/nowhere", 0))
            assert (await client.reader.readline()).startswith(b"HTTP/1.1 404")
        async with await RawClient.open(server.data_url) as client:
            old = (head % (CHAT.encode(), 2)).replace(b"HTTP/1.1", b"HTTP/1.0")
            await client.send(old + b"{}")
            assert (await client.reader.readline()).startswith(b"HTTP/1.1 200")
        for seen in engine.requests:
            assert seen.values(b"expect") == []
        assert engine.faults == []


async def test_a_long_pipeline_is_answered_in_order_one_at_a_time(tmp_path: Path) -> None:
    """2,000 requests in one go, refused ones among them."""
    async with StrictEngine() as engine, running(engine.url, tmp_path) as server:
        count = 2_000
        sent = b"".join(
            request("GET", f"/v1/models?{number}" if number % 5 else f"/nowhere?{number}")
            for number in range(count)
        )
        async with await RawClient.open(server.data_url) as client:
            sending = asyncio.ensure_future(
                client.send(
                    sent + request("GET", "/v1/models?end", headers={"Connection": "close"})
                )
            )
            answers = seen_by_client(await client.read_until_close())
            await sending
        wanted = [
            (200, f"/v1/models?{number}", "") if number % 5 else (404, "", "")
            for number in range(count)
        ]
        assert answers == [*wanted, (200, "/v1/models?end", "")]
        assert engine.most_open == 1
        assert engine.faults == []


async def test_trailers_of_a_long_body_do_not_reach_the_engine(tmp_path: Path) -> None:
    """Of a body that streams through in chunks, what stands behind its last chunk is dropped."""
    async with StrictEngine() as engine, running(engine.url, tmp_path) as server:
        body = b'{"messages":"%b"}' % (b"x" * 600_000)
        data = request("POST", CHAT, body=body, chunked=True)
        data = data[:-2] + b"X-Giveway-Class: realtime\r\nX-Vllm-Priority: -9\r\n\r\n"
        async with await RawClient.open(server.data_url) as client:
            sending = asyncio.ensure_future(client.send(data))
            assert (await client.answer()).status == 200
            await sending
        (seen,) = engine.requests
        assert seen.body == body
        assert seen.values(b"transfer-encoding") == [b"chunked"]
        assert engine.faults == []


async def test_a_flood_of_silent_clients_leaves_the_others_served(tmp_path: Path) -> None:
    """Forty clients that send half a head take forty places for the head's time, and no longer."""
    settings = replace(LOCAL, maximum_connections=50, header_timeout_s=0.5)
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=settings) as server,
    ):
        silent = [await RawClient.open(server.data_url) for _ in range(40)]
        for client in silent:
            await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost")
        for _ in range(10):
            assert (await ask(server.data_url, CHAT, chat_body())).status == 200
        for client in silent:
            assert b"408" in (await client.read_until_close())[:20]
            await client.close()
        await is_empty(server)
