"""Asking Prometheus: whatever answers, it is a vector or a failure with its reason, in time."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from giveway_operator.querying import (
    PrometheusClient,
    PrometheusSettings,
    QueryError,
    QueryFailure,
)

from tests.support.waiting import until

VECTOR = {
    "status": "success",
    "data": {
        "resultType": "vector",
        "result": [{"metric": {"class": "c0"}, "value": [1.5, "42"]}],
    },
}


def http(body: bytes | object, *, status: str = "200 OK", headers: tuple[str, ...] = ()) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(data)}", "Connection: close", *headers]
    return ("\r\n".join(head) + "\r\n\r\n").encode() + data


@dataclass(slots=True)
class Server:
    """Answers every connection with the same bytes, or not at all."""

    answer: bytes
    pause_s: float = 0.0
    """Between single bytes of the answer; 0: all at once."""
    url: str = ""
    heads: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            size = 1 if self.pause_s else len(self.answer)
            for at in range(0, len(self.answer), size or 1):
                writer.write(self.answer[at : at + size])
                await writer.drain()
                await asyncio.sleep(self.pause_s)
            if not self.answer:
                await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(answer: bytes, *, pause_s: float = 0.0) -> AsyncIterator[Server]:
    server = Server(answer, pause_s=pause_s)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()


@asynccontextmanager
async def asking(settings: PrometheusSettings) -> AsyncIterator[PrometheusClient]:
    client = PrometheusClient(settings)
    try:
        yield client
    finally:
        client.close()


async def failure_of(settings: PrometheusSettings) -> QueryError:
    async with asking(settings) as client:
        with pytest.raises(QueryError) as caught:
            await client.query("up")
        assert client.failures[caught.value.reason] == 1
        assert sum(client.failures.values()) == 1
        return caught.value


async def test_a_vector_is_read_and_the_prefix_kept() -> None:
    async with serving(http(VECTOR)) as server:
        settings = PrometheusSettings(url=f"{server.url}/prom/")
        async with asking(settings) as client:
            (sample,) = await client.query('up{a="b"}')
    assert (sample.labels, sample.value) == ({"class": "c0"}, 42.0)
    assert server.heads[0].startswith("GET /prom/api/v1/query?query=up%7Ba%3D%22b%22%7D&")
    assert "partial_response=false" in server.heads[0]


Change = Callable[[dict[str, object]], object]


def _error(kind: str, text: str) -> dict[str, str]:
    return {"status": "error", "errorType": kind, "error": text}


@pytest.mark.parametrize(
    ("answer", "reason", "says"),
    [
        (http(b"<html>Sign in</html>"), QueryFailure.NOT_PROMETHEUS, "Sign in"),
        (http(b"", status="204 No Content"), QueryFailure.NOT_PROMETHEUS, "204"),
        (http(b"not here", status="404 Not Found"), QueryFailure.NOT_PROMETHEUS, "404"),
        (
            http(b"", status="302 Found", headers=("Location: http://127.0.0.1:1/login",)),
            QueryFailure.NOT_PROMETHEUS,
            "redirect",
        ),
        (http(b"no", status="401 Unauthorized"), QueryFailure.CREDENTIALS, "401"),
        (http(b"no", status="403 Forbidden"), QueryFailure.CREDENTIALS, "403"),
        (
            http(_error("bad_data", "parse error"), status="400 Bad Request"),
            QueryFailure.BAD_QUERY,
            "parse error",
        ),
        (
            http(_error("execution", "too many samples"), status="422 Unprocessable"),
            QueryFailure.BAD_QUERY,
            "too many samples",
        ),
        (
            http(_error("timeout", "query timed out"), status="503 Service Unavailable"),
            QueryFailure.TIMEOUT,
            "timed out",
        ),
        (http(b"oops", status="500 Internal"), QueryFailure.SERVER_ERROR, "500"),
        (http(b"oops", status="503 Unavailable"), QueryFailure.SERVER_ERROR, "503"),
        (http({**VECTOR, "warnings": ["store a is down"]}), QueryFailure.PARTIAL, "store a"),
        (http({**VECTOR, "isPartial": True}), QueryFailure.PARTIAL, "partial"),
        (http({"status": "success"}), QueryFailure.NOT_PROMETHEUS, "not a vector"),
        (
            http({"status": "success", "data": {"resultType": "scalar", "result": [1, "0"]}}),
            QueryFailure.NOT_PROMETHEUS,
            "not a vector",
        ),
        (
            http({"status": "success", "data": {"resultType": "matrix", "result": []}}),
            QueryFailure.NOT_PROMETHEUS,
            "not a vector",
        ),
        (
            http({"status": "success", "data": {"resultType": "vector", "result": [[1, "0"]]}}),
            QueryFailure.NOT_PROMETHEUS,
            "another form",
        ),
        (http(b"[" * 100_000), QueryFailure.NOT_PROMETHEUS, "not Prometheus"),
        (http(VECTOR)[:-9], QueryFailure.UNREACHABLE, ""),
        (b"garbage\r\n\r\n", QueryFailure.UNREACHABLE, ""),
    ],
    ids=lambda value: str(value)[:25],
)
async def test_e13_what_is_no_answer_is_a_failure_with_its_reason(
    answer: bytes, reason: QueryFailure, says: str
) -> None:
    """E13, E14: never an empty result, which would read as no traffic."""
    async with serving(answer) as server:
        error = await failure_of(PrometheusSettings(url=server.url))
    assert error.reason is reason, error
    assert says in str(error)
    assert len(server.heads) == 1, "one query is one request"


@pytest.mark.parametrize("written", ["NaN", "+Inf", "-Inf", "1e309", "text"])
async def test_e14_a_value_that_is_no_number_stays_visible_as_one(written: str) -> None:
    """E14: it is handed on as not finite; who reads counts refuses it."""
    vector = json.loads(json.dumps(VECTOR))
    vector["data"]["result"][0]["value"][1] = written
    async with (
        serving(http(vector)) as server,
        asking(PrometheusSettings(url=server.url)) as client,
    ):
        (sample,) = await client.query("up")
    assert sample.value != sample.value or abs(sample.value) == float("inf")


async def test_nobody_there_is_unreachable() -> None:
    async with serving(b"x") as server:
        url = server.url
    assert (await failure_of(PrometheusSettings(url=url))).reason is QueryFailure.UNREACHABLE


async def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    settings = PrometheusSettings(url="http://nowhere.invalid:9090")
    assert (await failure_of(settings)).reason is QueryFailure.UNREACHABLE


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://prometheus", "http://"])
async def test_a_url_that_is_none_is_told(url: str) -> None:
    error = await failure_of(PrometheusSettings(url=url))
    assert error.reason in (QueryFailure.NOT_PROMETHEUS, QueryFailure.UNREACHABLE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "pause_s"), [(b"", 0.0), (http(VECTOR), 0.05)], ids=["silent", "byte by byte"]
)
async def test_e19_no_query_takes_longer_than_its_time_out(answer: bytes, pause_s: float) -> None:
    """E19: it hangs alone; the event loop goes on, and other queries are answered meanwhile."""
    async with serving(answer, pause_s=pause_s) as slow, serving(http(VECTOR)) as quick:
        hanging = asyncio.create_task(failure_of(PrometheusSettings(url=slow.url, timeout_s=1.0)))
        await until(lambda: slow.heads, what="it hangs")
        async with asking(PrometheusSettings(url=quick.url)) as client:
            assert len(await client.query("up")) == 1
        assert not hanging.done()
        error = await hanging
    assert error.reason is QueryFailure.TIMEOUT
    assert "within 1 s" in str(error)


async def test_an_answer_beyond_every_measure_is_refused_while_it_comes() -> None:
    big = http(b" " * 100_000)
    async with serving(big) as server:
        error = await failure_of(PrometheusSettings(url=server.url, largest_answer_bytes=50_000))
    assert error.reason is QueryFailure.TOO_LARGE


async def test_credentials_are_read_at_each_query(tmp_path: Path) -> None:
    """A projected token is renewed every hour; one that cannot be read is told by its file."""
    file = tmp_path / "token"
    file.write_text("first\n")
    async with serving(http(VECTOR)) as server:
        settings = PrometheusSettings(
            url=server.url,
            bearer_token_file=file,
            headers=(("X-Scope-OrgID", "team-a"),),
        )
        async with asking(settings) as client:
            await client.query("up")
            file.write_text("second")
            await client.query("up")
            file.unlink()
            with pytest.raises(QueryError, match="token cannot be read: no such file") as caught:
                await client.query("up")
    assert caught.value.reason is QueryFailure.CREDENTIALS
    assert "Authorization: Bearer first\r\n" in server.heads[0]
    assert "Authorization: Bearer second\r\n" in server.heads[1]
    assert all("X-Scope-OrgID: team-a\r\n" in head for head in server.heads)
    assert len(server.heads) == 2


async def test_basic_authentication_takes_its_password_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no .netrc replaces it."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login thief password stolen\n")
    monkeypatch.setenv("NETRC", str(netrc))
    file = tmp_path / "password"
    file.write_text("pässword\n")
    async with serving(http(VECTOR)) as server:
        settings = PrometheusSettings(
            url=server.url, basic_user="giveway", basic_password_file=file
        )
        async with asking(settings) as client:
            await client.query("up")
    wanted = base64.b64encode("giveway:pässword".encode()).decode()
    assert f"Authorization: Basic {wanted}\r\n" in server.heads[0]


@pytest.mark.slow
async def test_long_queries_go_one_by_one_and_hold_up_no_other() -> None:
    """Ten questions over three days of samples, and nobody else waits for them."""
    async with (
        serving(http(VECTOR), pause_s=0.004) as server,
        asking(PrometheusSettings(url=server.url, timeout_s=5.0)) as client,
    ):
        long = [asyncio.create_task(client.query_long("days")) for _ in range(10)]
        await until(lambda: server.heads, what="the first is asked")
        assert len(server.heads) == 1
        await client.query("now")
        assert not long[-1].done()
        assert len(await asyncio.gather(*long)) == 10
