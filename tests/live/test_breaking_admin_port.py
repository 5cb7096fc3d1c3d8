"""Can bytes on the admin port make it fail, or wake somebody by an error in the log?"""

import random

import pytest

from tests.support.proxy_fixtures import Stand
from tests.support.raw_client import RawClient, ask

pytestmark = pytest.mark.asyncio(loop_scope="module")

_START = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"

REQUESTS = {
    "expects what is not ASCII": _START + b"Expect: \xff\xfe\r\n\r\n",
    "expects the unknown": _START + b"Expect: something\r\n\r\n",
    "expects twice": _START + b"Expect: \xff\r\nExpect: 100-continue\r\n\r\n",
    "expects at no path": _START.replace(b"metrics", b"none") + b"Expect: \xff\r\n\r\n",
    "broken chunks": _START + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdeXX0\r\n\r\n",
    "body with a false encoding": (
        _START + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde"
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_g10_odd_requests_are_answered_and_log_no_error(stand: Stand, name: str) -> None:
    """An answer below 500; the fixture looks for errors in the log."""
    async with await RawClient.open(stand.proxy.admin_url) as client:
        await client.send(REQUESTS[name])
        answer = await client.read_until_close()
    assert answer[9:10] in (b"2", b"4"), answer[:300]


@pytest.mark.slow
async def test_g14_bytes_without_meaning_are_refused(stand: Stand) -> None:
    """200 random pieces, a TLS greeting, HTTP/2: each is refused with 4xx or closed, none is kept;
    probes go on beside them."""
    chosen = random.Random(5)
    pieces = [chosen.randbytes(chosen.randint(1, 3000)) + b"\r\n\r\n" for _ in range(200)]
    pieces += [b"\x16\x03\x01\x02\x00" + bytes(500), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    for piece in pieces:
        async with await RawClient.open(stand.proxy.admin_url) as client:
            await client.send(piece)
            answer = await client.read_until_close()
        assert answer[9:10] in (b"", b"4"), (piece, answer[:300])
    assert (await ask(stand.proxy.admin_url, "/livez")).status == 200
