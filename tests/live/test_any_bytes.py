"""What do arbitrary bytes on either port do? A clean 4xx or a close, and nothing else."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.proxy_fixtures import Stand
from tests.support.raw_client import ClosedError, RawClient, ask, chat_body, request
from tests.support.scripted_engine import answering
from tests.support.vllm_answers import chat_answer
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

CHAT = "/v1/chat/completions"
GOOD = request("POST", CHAT, body=chat_body())
GOOD_GET = request("GET", "/metrics")


def corpus() -> Iterator[tuple[str, bytes]]:
    """Broken requests that parsers stumble over."""
    yield "nothing", b""
    yield "one-nul", b"\0"
    yield "nuls", b"\0" * 4096
    yield "newlines", b"\r\n" * 5000
    yield "tls-hello", bytes.fromhex("16030100a5010000a10303") + bytes(160)
    yield "ssh", b"SSH-2.0-OpenSSH_9.6\r\n"
    yield "http-0.9", b"GET /v1/models\r\n"
    yield "http-3.7", b"GET /v1/models HTTP/3.7\r\nHost: a\r\n\r\n"
    yield "http-huge-version", b"GET / HTTP/99999999999.1\r\nHost: a\r\n\r\n"
    yield "no-target", b"GET  HTTP/1.1\r\nHost: a\r\n\r\n"
    yield "method-unknown", b"BREW /v1/models HTTP/1.1\r\nHost: a\r\n\r\n"
    yield "method-long", b"A" * 100_000 + b" / HTTP/1.1\r\n\r\n"
    yield "target-long", b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    yield "target-bytes", b"GET /\xff\xfe\x80 HTTP/1.1\r\nHost: a\r\n\r\n"
    yield "header-long", b"GET /v1/models HTTP/1.1\r\nX: " + b"a" * 300_000 + b"\r\n\r\n"
    yield "headers-many", b"GET /v1/models HTTP/1.1\r\n" + b"X: y\r\n" * 5000 + b"\r\n"
    yield "header-no-colon", b"GET /v1/models HTTP/1.1\r\nnonsense\r\n\r\n"
    yield "header-no-name", b"GET /v1/models HTTP/1.1\r\n: value\r\n\r\n"
    yield "header-bytes", b"GET /v1/models HTTP/1.1\r\nX-\xff: \xfe\x01\r\n\r\n"
    yield "half-head", b"POST /v1/chat/completions HTTP/1.1\r\nContent-Le"
    yield "half-body", GOOD[:-5]
    yield "body-not-json", request("POST", CHAT, body=b"\xff\xfe{")
    yield "body-empty", request("POST", CHAT, body=b"")
    yield "body-null", request("POST", CHAT, body=b"null")
    yield "body-array", request("POST", CHAT, body=b"[]")
    yield "body-string", request("POST", CHAT, body=b'"text"')
    yield "body-surrogate", request("POST", CHAT, body=b'{"model":"\\ud800"}')
    yield "body-nan", request("POST", CHAT, body=b'{"max_tokens":NaN}')
    yield (
        "body-wrong-types",
        request(
            "POST", CHAT, body=b'{"messages":{"a":1},"max_tokens":"x","n":-5,"stream":"maybe"}'
        ),
    )
    yield (
        "body-huge-counts",
        request("POST", CHAT, body=b'{"messages":[],"max_tokens":1e400,"n":99999999999999999999}'),
    )
    yield (
        "no-body-type",
        b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n\1\2\3",
    )
    yield (
        "chunk-size-huge",
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"ffffffffffffffff\r\n"
        ),
    )
    yield (
        "chunk-size-letters",
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"zz\r\n"
        ),
    )
    yield (
        "trailers-many",
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\n" + b"T: x\r\n" * 5000 + b"\r\n"
        ),
    )


CORPUS = dict(corpus())


async def throw(url: str, data: bytes) -> list[int]:
    """Send bytes, end the connection, and give the status of every answer that came."""
    async with await RawClient.open(url) as client:
        try:
            await client.send(data)
            client.half_close()
        except (ConnectionError, OSError):
            return []
        got = await client.read_until_close()
    lines = [line for line in got.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    return [int(line.split(b" ")[1]) for line in lines]


async def assert_unharmed(stand: Stand) -> None:
    """A good request on each port works, and nothing is stuck."""
    assert (await ask(stand.proxy.url, CHAT, chat_body())).status == 200
    assert (await ask(stand.proxy.admin_url, "/livez")).status == 200
    assert stand.proxy.exit_code is None


@pytest.mark.parametrize("port", ["data", "admin"])
@pytest.mark.parametrize("name", CORPUS)
async def test_broken_requests_get_a_clean_refusal(stand: Stand, name: str, port: str) -> None:
    """Each entry of the corpus: only 2xx and 4xx answers, never a 500, and the proxy goes on."""
    stand.engine.script = answering(chat_answer())
    url = stand.proxy.url if port == "data" else stand.proxy.admin_url
    statuses = await throw(url, CORPUS[name])
    assert all(status < 500 for status in statuses), statuses
    await assert_unharmed(stand)


PIECES = (b"\r\n", b"\0", b"\r\n\r\n", b":", b" ", b"chunked", b"9" * 20, b"{", b"\n")
"""What parsers react to."""


def mutated(data: bytes, generator: random.Random) -> bytes:
    """A good request with a few bytes changed, removed, doubled or cut off."""
    changed = bytearray(data)
    for _ in range(generator.randint(1, 6)):
        place = generator.randrange(len(changed)) if changed else 0
        match generator.randrange(5):
            case 0:
                changed[place : place + 1] = bytes([generator.randrange(256)])
            case 1:
                del changed[place : place + generator.randint(1, 20)]
            case 2:
                changed[place:place] = changed[place : place + generator.randint(1, 40)]
            case 3:
                changed[place:place] = generator.choice(PIECES)
            case _:
                del changed[place:]
    return bytes(changed)


@pytest.mark.parametrize("port", ["data", "admin"])
async def test_mutated_requests_never_cause_a_500(stand: Stand, port: str) -> None:
    """600 mutations of a good request, from a fixed seed, on either port."""
    stand.engine.script = answering(chat_answer())
    url, good = (stand.proxy.url, GOOD) if port == "data" else (stand.proxy.admin_url, GOOD_GET)
    generator = random.Random(3)
    for index in range(600):
        data = mutated(good, generator)
        statuses = await throw(url, data)
        assert all(status < 500 for status in statuses), (index, data, statuses)
    await assert_unharmed(stand)


@pytest.mark.parametrize("port", ["data", "admin"])
async def test_random_bytes_never_cause_a_500(stand: Stand, port: str) -> None:
    """Bytes that hypothesis makes up, also after a good request on the same connection."""
    stand.engine.script = answering(chat_answer())
    url, good = (stand.proxy.url, GOOD) if port == "data" else (stand.proxy.admin_url, GOOD_GET)
    examples: list[bytes] = []

    @settings(max_examples=150, deadline=None, database=None, derandomize=True)
    @given(st.binary(max_size=300), st.booleans())
    def collect(data: bytes, after_good: bool) -> None:
        examples.append(good + data if after_good else data)

    collect()
    for data in examples:
        statuses = await throw(url, data)
        assert all(status < 500 for status in statuses), (data, statuses)
    await assert_unharmed(stand)


async def test_a_good_connection_survives_its_neighbours(stand: Stand) -> None:
    """One kept connection works on between all kinds of garbage on others."""
    stand.engine.script = answering(chat_answer())
    async with await RawClient.open(stand.proxy.url) as good:
        for data in CORPUS.values():
            await throw(stand.proxy.url, data)
            try:
                assert (await good.post(CHAT, chat_body())).status == 200
            except ClosedError:
                pytest.fail("a neighbour's garbage closed a good connection")
    await until(lambda: stand.engine.busy == 0, what="the engine is free")
