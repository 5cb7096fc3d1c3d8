"""Do the proxy and the engine agree where each request ends, and what it says?

Each shape is one that servers have been known to read differently. It is either refused and the
connection closed, or the engine gets exactly the body that is named here, in a form that cannot be
misread; and what follows on the connection is never taken for something else.
"""

import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from giveway_admission.serving import Server

from tests.admission.data_plane import CHAT, is_empty, running
from tests.hostile.strict_engine import StrictEngine, seen_by_client
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = CHAT.encode()
FOLLOWING = (
    b"GET /v1/models?following HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Filler: %b\r\n\r\n"
    % (b"x" * 80)
)
"""Sent behind each shape; the last request of its connection. So long that no length said here
reaches its end."""


def post(*lines: bytes, body: bytes = b"", first: bytes = b"POST " + PATH + b" HTTP/1.1") -> bytes:
    return b"\r\n".join([first, b"Host: a", *lines, b"", b""]) + body


def chunked(body: bytes, *lines: bytes, encoding: bytes = b"Transfer-Encoding: chunked") -> bytes:
    return post(encoding, *lines, body=body)


OBJECT = b'{"a":1}'
CHUNKS = b"7\r\n" + OBJECT + b"\r\n0\r\n\r\n"

REFUSED: dict[str, bytes] = {
    "te-space-before-colon": chunked(CHUNKS, encoding=b"Transfer-Encoding : chunked"),
    "te-space-before-name": chunked(CHUNKS, encoding=b" Transfer-Encoding: chunked"),
    "te-vertical-tab": chunked(CHUNKS, encoding=b"Transfer-Encoding: \x0bchunked"),
    "te-form-feed": chunked(CHUNKS, encoding=b"Transfer-Encoding: chunked\x0c"),
    "te-nul": chunked(CHUNKS, encoding=b"Transfer-Encoding: chunked\0"),
    "te-quoted": chunked(CHUNKS, encoding=b'Transfer-Encoding: "chunked"'),
    "te-parameter": chunked(CHUNKS, encoding=b"Transfer-Encoding: chunked;q=1"),
    "te-twice": chunked(
        CHUNKS, encoding=b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"
    ),
    "te-list-twice": chunked(CHUNKS, encoding=b"Transfer-Encoding: chunked, chunked"),
    "te-gzip-chunked": chunked(CHUNKS, encoding=b"Transfer-Encoding: gzip, chunked"),
    "te-trailing-comma": chunked(CHUNKS, encoding=b"Transfer-Encoding: chunked,"),
    "te-leading-comma": chunked(CHUNKS, encoding=b"Transfer-Encoding: ,chunked"),
    "te-folded": chunked(CHUNKS, encoding=b"Transfer-Encoding:\r\n chunked"),
    "te-behind-bare-lf": post(b"X: y\nTransfer-Encoding: chunked", body=CHUNKS),
    "te-behind-bare-cr": post(b"X: y\rTransfer-Encoding: chunked", body=CHUNKS),
    "te-empty": chunked(CHUNKS, encoding=b"Transfer-Encoding:"),
    "te-tab-behind": chunked(CHUNKS, encoding=b"Transfer-Encoding: chunked\t"),
    "te-in-1.0": post(
        b"Transfer-Encoding: chunked", body=CHUNKS, first=b"POST " + PATH + b" HTTP/1.0"
    ),
    "te-then-length": chunked(CHUNKS, b"Content-Length: 7"),
    "length-then-te": post(b"Content-Length: 7", b"Transfer-Encoding: chunked", body=CHUNKS),
    "te-obscured-and-length": post(
        b"Content-Length: 7", b"Transfer-Encoding: x-chunked", body=OBJECT
    ),
    "lengths-differ": post(b"Content-Length: 7", b"Content-Length: 8", body=OBJECT),
    "lengths-differ-in-case": post(b"Content-Length: 7", b"content-length: 0", body=OBJECT),
    "lengths-in-a-list": post(b"Content-Length: 7, 8", body=OBJECT),
    "length-plus": post(b"Content-Length: +7", body=OBJECT),
    "length-minus": post(b"Content-Length: -7", body=OBJECT),
    "length-space-inside": post(b"Content-Length: 7 0", body=OBJECT),
    "length-underscore": post(b"Content-Length: 7_0", body=OBJECT),
    "length-hex": post(b"Content-Length: 0x7", body=OBJECT),
    "length-not-ascii": post("Content-Length: \u0667".encode(), body=OBJECT),
    "length-overflows": post(b"Content-Length: 18446744073709551623", body=OBJECT),
    "length-nul": post(b"Content-Length: 7\0", body=OBJECT),
    "length-folded": post(b"Content-Length:\r\n 7", body=OBJECT),
    "length-space-before-colon": post(b"Content-Length : 7", body=OBJECT),
    "chunk-overflows-64-bits": chunked(b"10000000000000007\r\n" + OBJECT + b"\r\n0\r\n\r\n"),
    "chunk-plus": chunked(b"+7\r\n" + OBJECT + b"\r\n0\r\n\r\n"),
    "chunk-space-before": chunked(b" 7\r\n" + OBJECT + b"\r\n0\r\n\r\n"),
    "chunk-bare-lf": chunked(b"7\n" + OBJECT + b"\n0\n\n"),
    "chunk-bare-lf-behind-data": chunked(b"7\r\n" + OBJECT + b"\n0\r\n\r\n"),
    "chunk-bare-cr": chunked(b"7\r" + OBJECT + b"\r0\r\r"),
    "chunk-no-line-end-behind-data": chunked(b"7\r\n" + OBJECT + b"0\r\n\r\n"),
    "chunk-size-missing": chunked(b"\r\n" + OBJECT + b"\r\n0\r\n\r\n"),
    "chunk-underscore": chunked(b"0_7\r\n" + OBJECT + b"\r\n0\r\n\r\n"),
    "chunk-nul-in-extension": chunked(b"7;a=\0\r\n" + OBJECT + b"\r\n0\r\n\r\n"),
    "trailer-folded": chunked(b"7\r\n" + OBJECT + b"\r\n0\r\nX: a\r\n b\r\n\r\n"),
    "trailer-bare-lf": chunked(b"7\r\n" + OBJECT + b"\r\n0\r\nX: a\n\n"),
    "trailer-with-length": chunked(b"7\r\n" + OBJECT + b"\r\n0\r\nContent-Length: 9\r\n\r\n"),
    "trailer-with-te": chunked(b"7\r\n" + OBJECT + b"\r\n0\r\nTransfer-Encoding: x\r\n\r\n"),
    "name-empty": post(b": x", b"Content-Length: 7", body=OBJECT),
    "name-with-nul": post(b"X\0: x", b"Content-Length: 7", body=OBJECT),
    "name-with-lf": post(b"X\n: x", b"Content-Length: 7", body=OBJECT),
    "no-colon": post(b"Content-Length 7", body=OBJECT),
    "first-header-folded": b"POST " + PATH + b" HTTP/1.1\r\n Host: a\r\n\r\n",
    "two-hosts": post(b"Host: b", b"Content-Length: 7", body=OBJECT),
    "request-line-tab": post(
        b"Content-Length: 7", body=OBJECT, first=b"POST\t" + PATH + b"\tHTTP/1.1"
    ),
    "request-line-extra-word": post(
        b"Content-Length: 7", body=OBJECT, first=b"POST " + PATH + b" x HTTP/1.1"
    ),
    "request-line-bare-lf": b"POST " + PATH + b" HTTP/1.1\nHost: a\r\nContent-Length: 0\r\n\r\n",
    "method-in-lower-case": post(
        b"Content-Length: 7", body=OBJECT, first=b"post " + PATH + b" HTTP/1.1"
    ),
    "space-before-method": b" " + post(b"Content-Length: 7", body=OBJECT),
    "target-absolute": post(
        b"Content-Length: 7", body=OBJECT, first=b"POST http://b" + PATH + b" HTTP/1.1"
    ),
    "version-1.2": post(b"Content-Length: 7", body=OBJECT, first=b"POST " + PATH + b" HTTP/1.2"),
}

SERVED: dict[str, tuple[bytes, bytes]] = {
    "length": (post(b"Content-Length: 7", body=OBJECT), OBJECT),
    "length-with-zeros": (post(b"Content-Length: 007", body=OBJECT), OBJECT),
    "length-with-tabs": (post(b"Content-Length:\t7\t", body=OBJECT), OBJECT),
    "length-with-underscore-is-another-name": (
        post(b"Content_Length: 70", b"Content-Length: 7", body=OBJECT),
        OBJECT,
    ),
    "te-with-underscore-is-another-name": (
        post(b"Transfer_Encoding: chunked", b"Content-Length: 7", body=OBJECT),
        OBJECT,
    ),
}
SERVED_CHUNKS: dict[str, tuple[bytes, bytes]] = {
    "chunks": (chunked(CHUNKS), OBJECT),
    "te-in-capitals": (chunked(CHUNKS, encoding=b"TRANSFER-ENCODING: CHUNKED"), OBJECT),
    "te-without-space": (chunked(CHUNKS, encoding=b"Transfer-Encoding:chunked"), OBJECT),
    "chunk-zeros": (chunked(b"0000000007\r\n" + OBJECT + b"\r\n00\r\n\r\n"), OBJECT),
    "chunk-extension": (chunked(b'7;a="b";c\r\n' + OBJECT + b"\r\n0;d\r\n\r\n"), OBJECT),
    "trailers": (
        chunked(
            b"7\r\n" + OBJECT + b"\r\n0\r\nX-Request-Id: x\r\nAuthorization: Bearer x\r\n"
            b"X-Giveway-Class: realtime\r\nX-Vllm-Priority: -9\r\nHost: b\r\n\r\n"
        ),
        OBJECT,
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[StrictEngine, Server]]:
    async with (
        StrictEngine() as engine,
        running(engine.url, tmp_path_factory.mktemp("policy")) as server,
    ):
        yield engine, server


async def exchanged(server: Server, data: bytes) -> list[tuple[int, str, str]]:
    """What a client gets that sends this in one go and reads to the end."""
    async with await RawClient.open(server.data_url) as client:
        await client.send(data)
        return seen_by_client(await client.read_until_close())


@pytest.mark.parametrize("name", REFUSED)
async def test_what_can_be_read_in_two_ways_is_refused(
    pair: tuple[StrictEngine, Server], name: str
) -> None:
    """One 4xx, the connection closed, and nothing of it or behind it at the engine."""
    engine, server = pair
    before = len(engine.requests)
    answers = await exchanged(server, REFUSED[name] + FOLLOWING)
    assert [status // 100 for status, _, _ in answers] == [4], answers
    assert engine.requests[before:] == []
    assert engine.faults == []


@pytest.mark.parametrize("name", SERVED)
async def test_what_is_only_unusual_is_served_with_our_framing(
    pair: tuple[StrictEngine, Server], name: str
) -> None:
    """The engine sees one length, one body, and then the following request as one of its own."""
    engine, server = pair
    before = len(engine.requests)
    data, body = SERVED[name]
    answers = await exchanged(server, data + FOLLOWING)
    shown = body.decode()
    assert answers == [(200, CHAT, shown), (200, "/v1/models?following", "")]
    seen, following = engine.requests[before:]
    assert (seen.method, seen.body) == (b"POST", body)
    assert seen.values(b"content-length") == [b"%d" % len(body)]
    assert following.method == b"GET"
    assert engine.faults == []


@pytest.mark.parametrize("name", SERVED_CHUNKS)
async def test_chunks_reach_the_engine_as_one_body_without_trailers(
    pair: tuple[StrictEngine, Server], name: str
) -> None:
    """What stood in extensions and trailers is gone; the client sends the following request again,
    and gets it, where it comes in a packet of its own."""
    engine, server = pair
    before = len(engine.requests)
    data, body = SERVED_CHUNKS[name]
    assert await exchanged(server, data + FOLLOWING) == [(200, CHAT, body.decode())]
    async with await RawClient.open(server.data_url) as client:
        await client.send(data)
        assert (await client.answer()).status == 200
        await client.send(FOLLOWING)
        assert (await client.answer()).json()["target"] == "/v1/models?following"
    for seen in engine.requests[before : before + 2]:
        assert seen.body == body
        assert seen.values(b"content-length") == [b"%d" % len(body)]
        for gone in (b"transfer-encoding", b"x-giveway-class"):
            assert seen.values(gone) == []
        assert seen.values(b"x-vllm-priority") in ([], [b"0"])
    assert len(engine.requests) == before + 3
    assert engine.faults == []


LINES: tuple[bytes, ...] = (
    *(b"Content-Length: 7", b"Content-Length: 0", b"Content-Length: 70", b"content-length: 7"),
    *(b"Content-Length: 7,7", b"Transfer-Encoding: chunked", b"transfer-encoding: CHUNKED"),
    *(b"Transfer-Encoding: identity", b"Connection: close", b"Connection: Content-Length"),
    *(b"Connection: keep-alive, Transfer-Encoding, Host", b"Expect: 100-continue", b"TE: trailers"),
    *(b"Upgrade: h2c", b"X-A: b", b"x-a: c", b"X-Giveway-Class: batch", b"Keep-Alive: timeout=1"),
    *(b"Trailer: X", b"Content-Encoding: identity", b"X-Vllm-Priority: -9", b"X-Request-Id: \xff"),
)
BODIES: tuple[bytes, ...] = (
    *(
        OBJECT,
        CHUNKS,
        b"",
        b"0\r\n\r\n",
        OBJECT + CHUNKS,
        b"7;x\r\n" + OBJECT + b"\r\n0\r\nX: y\r\n\r\n",
    ),
)


@pytest.mark.slow
async def test_any_mixture_of_lines_is_refused_or_understood_alike(
    pair: tuple[StrictEngine, Server],
) -> None:
    """600 mixtures from a fixed seed: the answers that are the engine's are of the requests that it
    saw, in that order, with the bodies that it saw."""
    engine, server = pair
    chance = random.Random(5)
    for _ in range(600):
        data = b""
        for _ in range(chance.randint(1, 3)):
            lines = chance.choices(LINES, k=chance.randint(0, 4))
            data += post(*lines, body=chance.choice(BODIES))
        before = len(engine.requests)
        try:
            answers = await exchanged(server, data + FOLLOWING)
        except Exception as error:
            error.add_note(f"sent: {data!r}")
            raise
        served = [(target, body) for status, target, body in answers if status == 200]
        seen = [
            (request.target.decode(), request.body.decode()) for request in engine.requests[before:]
        ]
        assert served == seen, data
        assert all(status == 200 or 400 <= status < 500 for status, _, _ in answers), data
        assert engine.faults == [], data
    assert engine.most_open == 1
    await is_empty(server)
