"""What must hold of a proxy once everything that a test did to it is over?

- no gauge is above 0, and every request that arrived has exactly one outcome;
- each token bucket holds its burst less what was charged, plus what came in since: not more, not
  less;
- no file descriptor is left but those of pooled connections to the engine, and memory is back;
- nothing was logged that would wake a person on call.

`Aftermath` is made when the proxy is ready, and asked when the test is done with it.
"""

import json
from dataclasses import dataclass
from time import monotonic
from urllib.parse import urlsplit

import psutil

from tests.support.processes import Proxy
from tests.support.raw_client import ask
from tests.support.scraping import Samples, is_idle, scrape
from tests.support.waiting import until

IDLE_WITHIN_S = 15.0
SPARE_FILES = 4
"""The admin port's own connections of this moment, and a probe that begins."""
GROWTH_BYTES = 48 * 2**20
"""What an allocator may keep of what a test needed for a moment, if it does not say itself."""


@dataclass(slots=True, kw_only=True)
class Aftermath:
    """How a proxy was when it was ready."""

    proxy: Proxy
    upstream_port: int | None
    started_s: float
    open_files: int
    rss_bytes: int
    policy_hash: str

    @classmethod
    async def expect(cls, proxy: Proxy, upstream: str) -> "Aftermath":
        return cls(
            proxy=proxy,
            upstream_port=urlsplit(upstream).port,
            started_s=monotonic(),
            open_files=proxy.open_files,
            rss_bytes=proxy.rss_bytes,
            policy_hash=_policy_hash(await scrape(proxy.admin_url)),
        )

    async def check(self) -> None:
        """All of it. Of a proxy that has ended only the log is read."""
        proxy = self.proxy
        if proxy.exit_code is None:
            admin_url = proxy.admin_url
            await until(lambda: is_idle(admin_url), what="all gauges are 0", within_s=IDLE_WITHIN_S)
            await until(self._files_are_back, what="all files are closed", within_s=IDLE_WITHIN_S)
            await self._check_counts()
            grown = proxy.rss_bytes - self.rss_bytes
            allowed = proxy.allowed_growth_bytes or GROWTH_BYTES
            assert grown < allowed, f"grown by {grown / 2**20:.0f} MiB"
        unexpected = [
            line
            for line in proxy.new_log_lines()
            if is_error_line(line) and not any(word in line for word in proxy.expected_errors)
        ]
        assert unexpected == [], "\n".join(unexpected[:5])

    def _files_are_back(self) -> bool:
        proxy = self.proxy
        pooled = sum(
            bool(each.raddr) and each.raddr.port == self.upstream_port
            for each in psutil.Process(proxy.pid).net_connections(kind="tcp")
        )
        return proxy.open_files - pooled <= self.open_files + SPARE_FILES

    async def _check_counts(self) -> None:
        samples = await scrape(self.proxy.admin_url)
        names = [labels["class"] for name, labels, _ in samples.values if name == _ARRIVED]
        assert names
        for name in names:
            arrived = samples.total(_ARRIVED, **{"class": name})
            ended = samples.total("giveway_requests_total", **{"class": name})
            assert arrived == ended, f"{name}: {arrived} arrived, {ended} ended"
        if _policy_hash(samples) == self.policy_hash:  # a reload may have made other buckets
            await self._check_buckets(samples)

    async def _check_buckets(self, samples: Samples) -> None:
        status = (await ask(self.proxy.admin_url, "/status")).json()
        elapsed_s = monotonic() - self.started_s + 1
        classes = status["classes"]
        assert isinstance(classes, list)
        for each in classes:
            bucket = each["tokens"]
            if bucket is None:
                continue
            of = {"class": str(each["name"])}
            charged = samples.total("giveway_tokens_total", kind="prompt", **of)
            charged += samples.total("giveway_tokens_total", kind="completion", **of)
            lowest = bucket["burst"] - charged
            highest = min(bucket["burst"], lowest + bucket["per_s"] * elapsed_s)
            assert lowest - 0.01 <= bucket["level"] <= highest + 0.01, (each, charged)


_ARRIVED = "giveway_requests_arrived_total"


def _policy_hash(samples: Samples) -> str:
    found = [labels for name, labels, _ in samples.values if name == "giveway_policy_info"]
    return found[0]["hash"] if found else ""


def is_error_line(line: str) -> bool:
    """Is it what a person on call would be woken by: an error, or no log line at all?"""
    try:
        entry = json.loads(line)
    except ValueError:
        return bool(line.strip())
    return not isinstance(entry, dict) or entry.get("level") in ("error", "critical")
