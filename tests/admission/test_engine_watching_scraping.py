"""The watcher against real servers that answer well, badly, slowly, or not at all."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port
from giveway_admission.engine_watching import (
    LARGEST_ANSWER_BYTES,
    EngineWatcher,
    ScrapeResult,
)

from tests.support.waiting import until

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def page(*, requests: int = 0, preemptions: int | None = 0, cache: float = 0.0) -> str:
    lines = [
        f'vllm:request_success_total{{engine="0",finished_reason="stop"}} {requests}',
        f'vllm:kv_cache_usage_perc{{engine="0"}} {cache}',
    ]
    if preemptions is not None:
        lines.append(f'vllm:num_preemptions_total{{engine="0"}} {preemptions}.0')
    return "\n".join(lines) + "\n"


class Engine:
    """A server whose next answer a test chooses."""

    def __init__(self) -> None:
        self.answer: Handler = self.text(page())
        self.seen: list[dict[str, str]] = []

    @staticmethod
    def text(text: str, status: int = 200) -> Handler:
        async def handle(_request: web.Request) -> web.Response:
            return web.Response(text=text, status=status)

        return handle

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(dict(request.headers))
        return await self.answer(request)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        application = web.Application()
        application.router.add_get("/metrics", self.handle)
        application.router.add_get("/elsewhere", self.text(page(requests=99)))
        async with TestServer(application) as server:
            yield str(server.make_url("/metrics"))


@asynccontextmanager
async def watching(
    url: str, *, timeout_s: float = 5.0
) -> AsyncIterator[tuple[EngineWatcher, Callable[[], Awaitable[ScrapeResult]], list[int]]]:
    """A watcher, a function that lets it read once, and what it reported."""
    reported: list[int] = []
    watcher = EngineWatcher(url, on_preemptions=reported.append, timeout_s=timeout_s)
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
        yield watcher, lambda: watcher.scrape(session), reported


async def test_preemptions_are_reported_as_differences() -> None:
    """The scheduler takes seats back for what happened since the last report, not for all of it."""
    engine = Engine()
    async with engine.serving() as url, watching(url) as (watcher, scrape, reported):
        for preemptions in (40, 40, 43, 50):
            engine.answer = engine.text(page(preemptions=preemptions))
            assert await scrape() is ScrapeResult.OK
    assert reported == [0, 0, 3, 7]
    assert watcher.reading.preemptions_total == 50


async def test_engine_that_was_restarted_is_no_negative_difference() -> None:
    """Its counters begin anew; what it counted since then is what happened."""
    engine = Engine()
    async with engine.serving() as url, watching(url) as (watcher, scrape, reported):
        for preemptions, requests in ((40, 1000), (2, 5), (3, 6)):
            engine.answer = engine.text(page(preemptions=preemptions, requests=requests))
            await scrape()
    assert reported == [0, 2, 1]
    assert watcher.reading.requests_total == 1006


async def test_missing_value_is_not_reported_and_keeps_what_was_known() -> None:
    """E17: a renamed metric is counted as incomplete, never taken for 0."""
    engine = Engine()
    async with engine.serving() as url, watching(url) as (watcher, scrape, reported):
        engine.answer = engine.text(page(preemptions=5, requests=10))
        await scrape()
        engine.answer = engine.text(page(preemptions=None, requests=11))
        assert await scrape() is ScrapeResult.INCOMPLETE
        engine.answer = engine.text(page(preemptions=6, requests=12))
        await scrape()
    assert reported == [0, 1]
    assert watcher.reading.preemptions_total == 6
    assert watcher.reading.scrapes[ScrapeResult.INCOMPLETE] == 1


async def test_nothing_is_known_before_the_first_answer() -> None:
    """Unknown is None."""
    watcher = EngineWatcher("http://127.0.0.1:1/metrics", on_preemptions=lambda _: None)
    reading = watcher.reading
    assert (reading.requests_total, reading.preemptions_total) == (None, None)
    assert reading.kv_cache_usage_ratio is None
    assert sum(reading.scrapes.values()) == 0


async def hang(_request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("never")


async def hang_within_the_body(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    await answer.write(b"vllm:num_preem")
    return await hang(request)


async def cut(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Length": "1000"})
    await answer.prepare(request)
    await answer.write(b"vllm:num_preemptions_total 3\n")
    assert request.transport is not None
    request.transport.abort()
    return answer


async def never_ending(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(LARGEST_ANSWER_BYTES // 2**16 + 64):
        await answer.write(b"#" * 2**16)
    return answer


async def redirect(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/elsewhere")


async def packed(_request: web.Request) -> web.Response:
    body = gzip.compress(page(requests=1).encode())
    return web.Response(body=body, headers={"Content-Encoding": "gzip"})


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (Engine.text("", 500), ScrapeResult.STATUS),
        (Engine.text("", 404), ScrapeResult.STATUS),
        (redirect, ScrapeResult.STATUS),
        (hang, ScrapeResult.TIMEOUT),
        (hang_within_the_body, ScrapeResult.TIMEOUT),
        (cut, ScrapeResult.UNREACHABLE),
        (never_ending, ScrapeResult.TOO_LARGE),
        (packed, ScrapeResult.INCOMPLETE),
        (Engine.text("<html>no metrics</html>"), ScrapeResult.INCOMPLETE),
    ],
)
async def test_bad_answer_is_counted_and_changes_nothing(
    handler: Handler, expected: ScrapeResult
) -> None:
    """Hanging, huge, cut, redirected (G08) or nonsense: harmless, and the next one counts."""
    engine = Engine()
    timeout_s = 0.3 if expected is ScrapeResult.TIMEOUT else 10.0
    async with (
        engine.serving() as url,
        watching(url, timeout_s=timeout_s) as (watcher, scrape, reported),
    ):
        engine.answer = engine.text(page(requests=7, preemptions=2))
        await scrape()
        engine.answer = handler
        assert await scrape() is expected
        assert watcher.reading.requests_total == 7
        engine.answer = engine.text(page(requests=8, preemptions=2))
        assert await scrape() is ScrapeResult.OK
    assert watcher.reading.requests_total == 8
    assert watcher.reading.scrapes[expected] == 1
    assert reported == [0, 0]


async def test_engine_that_is_not_there_is_counted() -> None:
    """Nothing listens: no exception, no growth."""
    url = f"http://127.0.0.1:{unused_port()}/metrics"
    async with watching(url) as (watcher, scrape, reported):
        assert await scrape() is ScrapeResult.UNREACHABLE
    assert watcher.reading.scrapes[ScrapeResult.UNREACHABLE] == 1
    assert reported == []


class Sleeps:
    """A sleep that lasts until the test lets it end."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._turn = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self._turn.wait()
        self._turn.clear()

    def end(self) -> None:
        self._turn.set()


async def test_it_reads_at_once_and_then_once_an_interval() -> None:
    """A slow reading: once in 15 s by default, one connection, closed each time."""
    engine, sleeps = Engine(), Sleeps()
    async with engine.serving() as url:
        watcher = EngineWatcher(
            url,
            on_preemptions=lambda _: None,
            headers={"Authorization": "Bearer engine-key"},
            sleep=sleeps,
        )
        watcher.start()
        for reading in range(1, 4):
            await until(lambda: len(sleeps.asked) == reading, what="a reading")  # noqa: B023
            assert watcher.reading.scrapes[ScrapeResult.OK] == reading
            sleeps.end()
        await watcher.stop()
        await watcher.stop()
    assert set(sleeps.asked) == {15.0}
    assert {seen["Authorization"] for seen in engine.seen} == {"Bearer engine-key"}
    assert {seen["Accept-Encoding"] for seen in engine.seen} == {"identity"}


async def test_fault_in_what_it_calls_does_not_end_the_watch() -> None:
    """It is logged, and the next reading comes as always."""
    engine, sleeps = Engine(), Sleeps()

    def fail(_count: int) -> None:
        raise RuntimeError("ours")

    async with engine.serving() as url:
        watcher = EngineWatcher(url, on_preemptions=fail, sleep=sleeps)
        watcher.start()
        await until(lambda: len(sleeps.asked) == 1, what="the first reading")
        sleeps.end()
        await until(lambda: len(sleeps.asked) == 2, what="the second reading")
        await watcher.stop()
    assert len(engine.seen) == 2


async def test_stopping_ends_a_reading_that_hangs() -> None:
    """A proxy that ends does not wait for its engine."""
    engine = Engine()
    engine.answer = hang
    async with engine.serving() as url:
        watcher = EngineWatcher(url, on_preemptions=lambda _: None, timeout_s=60.0)
        watcher.start()
        await until(lambda: engine.seen, what="the request")
        await asyncio.wait_for(watcher.stop(), 5.0)


async def test_starting_twice_is_a_fault() -> None:
    """Two watchers would report each preemption twice."""
    engine = Engine()
    async with engine.serving() as url:
        watcher = EngineWatcher(url, on_preemptions=lambda _: None)
        watcher.start()
        with pytest.raises(RuntimeError, match="already"):
            watcher.start()
        await watcher.stop()
