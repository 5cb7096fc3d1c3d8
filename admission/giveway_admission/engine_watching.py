"""What does the engine itself say that the proxy cannot know?

Three things, read from the engine's own metrics every few seconds: how many requests it finished
(more than we sent: somebody goes around us), how many it preempted (its KV cache is too small for
our seats), and how full its KV cache is. Whatever the proxy knows itself is not asked for.

The answer is a stranger's: it may be missing, huge, slow, cut or nonsense. Then nothing changes but
a counter that says so. A value that is not in the answer is unknown, never 0 (E17): metrics were
renamed before and will be again, so each is looked for under all names it has had.

Labels are not looked at, so their order does not matter; samples of one name are added up.
"""

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import aiohttp

from giveway_admission.logs import log_event

LARGEST_ANSWER_BYTES = 4 * 2**20
"""vLLM's page has 60 kB; one with many models and adapters some hundred."""

REQUESTS_NAMES = ("vllm:request_success_total", "vllm:request_success")
PREEMPTIONS_NAMES = ("vllm:num_preemptions_total", "vllm:num_preemptions")
KV_CACHE_NAMES = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")

_logger = logging.getLogger(__name__)


class ScrapeResult(StrEnum):
    """How one reading went; the value is a metrics label."""

    OK = "ok"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    STATUS = "status"
    """Answered, but not with 200."""
    TOO_LARGE = "too_large"
    INCOMPLETE = "incomplete"
    """Answered, but something that is looked for was not in it, or was no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample:
    """One answer of the engine. None: it was not in it."""

    requests_total: float | None
    preemptions_total: float | None
    kv_cache_usage_ratio: float | None

    @property
    def complete(self) -> bool:
        return None not in (
            self.requests_total,
            self.preemptions_total,
            self.kv_cache_usage_ratio,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """What is known of the engine now. None: it never said so, or not in its last answer."""

    requests_total: float | None
    """Counted on over restarts of the engine."""
    preemptions_total: float | None
    kv_cache_usage_ratio: float | None
    scrapes: Mapping[ScrapeResult, int]


class RisingTotal:
    """Somebody else's counter, which may restart at 0, as one that never goes down."""

    __slots__ = ("_before", "_last")

    def __init__(self) -> None:
        self._before = 0.0
        self._last = 0.0

    def total(self, value: float) -> float:
        if value < self._last:
            self._before += self._last
        self._last = value
        return self._before + value


def read_engine_metrics(text: bytes) -> EngineSample:
    """Find the few values among the many. Any bytes are fine."""
    found: dict[bytes, list[float]] = {}
    for match in _SAMPLES.finditer(text):
        value = _to_number(match["value"])
        if value is not None:
            found.setdefault(match["name"], []).append(value)
    cache = _first(found, KV_CACHE_NAMES)
    return EngineSample(
        requests_total=_sum(_first(found, REQUESTS_NAMES)),
        preemptions_total=_sum(_first(found, PREEMPTIONS_NAMES)),
        kv_cache_usage_ratio=min(1.0, max(cache)) if cache else None,
    )


_ALL_NAMES = (*REQUESTS_NAMES, *PREEMPTIONS_NAMES, *KV_CACHE_NAMES)
_SAMPLES: Final = re.compile(
    # Label values are quoted and may hold braces and escaped quotes. Every part is possessive (it
    # gives nothing back), so that no text makes the search slower than its length.
    rb"^(?P<name>" + b"|".join(name.encode() for name in _ALL_NAMES) + rb")"
    rb'(?:\{(?:[^"}\n]++|"(?:[^"\\\n]++|\\[^\n])*+"){0,200}+\})?+'
    rb"[ \t]++(?P<value>[^\s]{1,32}+)(?=\s|\Z)",
    re.MULTILINE,
)


def _to_number(text: bytes) -> float | None:
    """None: not a number that a counter or a share can have."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value < math.inf else None


def _first(found: Mapping[bytes, list[float]], wanted: Iterable[str]) -> list[float]:
    """Values under the newest name that is there: old and new side by side count once."""
    return next((found[name.encode()] for name in wanted if name.encode() in found), [])


def _sum(values: list[float]) -> float | None:
    return sum(values) if values else None


class EngineWatcher:
    """Reads the engine's metrics every `interval_s` from `start` to `stop`.

    `on_preemptions(n)` is called after each reading that told them: n since the one before, 0 the
    first time and when there were none.
    """

    def __init__(
        self,
        url: str,
        *,
        on_preemptions: Callable[[int], None],
        interval_s: float = 15.0,
        timeout_s: float = 5.0,
        headers: Mapping[str, str] = MappingProxyType({}),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._url = url
        # What is packed could unpack to any size before it can be judged.
        self._headers = {**headers, "Accept-Encoding": "identity"}
        self._on_preemptions = on_preemptions
        self._interval_s = interval_s
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._sleep = sleep
        self._task: asyncio.Task[None] | None = None
        self._requests = RisingTotal()
        self._preemptions = RisingTotal()
        self._preemptions_reported: float | None = None
        self._scrapes = dict.fromkeys(ScrapeResult, 0)
        self._last_result: ScrapeResult | None = None
        self._reading = EngineReading(
            requests_total=None,
            preemptions_total=None,
            kv_cache_usage_ratio=None,
            scrapes=MappingProxyType(self._scrapes),
        )

    @property
    def reading(self) -> EngineReading:
        return self._reading

    def start(self) -> None:
        """Begin in the background. Calling it twice is a fault."""
        if self._task is not None:
            raise RuntimeError("the watcher runs already")
        self._task = asyncio.create_task(self._run(), name="engine-watcher")

    async def stop(self) -> None:
        """End, and give the connection back. May be called again."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        async with aiohttp.ClientSession(
            timeout=self._timeout,
            connector=aiohttp.TCPConnector(limit=1, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            auto_decompress=False,
            trust_env=False,
        ) as session:
            while True:
                try:
                    await self.scrape(session)
                except Exception as error:
                    log_event(_logger, logging.ERROR, "watching the engine failed", error=error)
                await self._sleep(self._interval_s)

    async def scrape(self, session: aiohttp.ClientSession) -> ScrapeResult:
        """Read once. Never raises for what the engine does."""
        result, text = await self._fetch(session)
        if result is ScrapeResult.OK:
            sample = read_engine_metrics(text)
            result = ScrapeResult.OK if sample.complete else ScrapeResult.INCOMPLETE
            self._take(sample)
        self._scrapes[result] += 1
        if result is not self._last_result:
            level = logging.INFO if result is ScrapeResult.OK else logging.WARNING
            log_event(_logger, level, "engine metrics read", result=result.value)
            self._last_result = result
        return result

    async def _fetch(self, session: aiohttp.ClientSession) -> tuple[ScrapeResult, bytes]:
        try:
            async with session.get(self._url, allow_redirects=False) as answer:
                if answer.status != 200:
                    return ScrapeResult.STATUS, b""
                text = bytearray()
                async for chunk in answer.content.iter_chunked(2**16):
                    text += chunk
                    if len(text) > LARGEST_ANSWER_BYTES:
                        return ScrapeResult.TOO_LARGE, b""
                return ScrapeResult.OK, bytes(text)
        except TimeoutError:
            return ScrapeResult.TIMEOUT, b""
        except (aiohttp.ClientError, OSError, ValueError):
            return ScrapeResult.UNREACHABLE, b""

    def _take(self, sample: EngineSample) -> None:
        before = self._reading
        requests, preemptions = sample.requests_total, sample.preemptions_total
        self._reading = EngineReading(
            requests_total=before.requests_total
            if requests is None
            else self._requests.total(requests),
            preemptions_total=before.preemptions_total
            if preemptions is None
            else self._preemptions.total(preemptions),
            kv_cache_usage_ratio=sample.kv_cache_usage_ratio,
            scrapes=before.scrapes,
        )
        if preemptions is not None:
            self._report_preemptions(self._reading.preemptions_total or 0.0)

    def _report_preemptions(self, total: float) -> None:
        reported = self._preemptions_reported
        self._preemptions_reported = total
        self._on_preemptions(0 if reported is None else int(total - reported))
