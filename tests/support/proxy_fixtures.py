"""How does a test get a proxy, and what is looked at when it is done with it?

`start_proxy` starts as many as a test wants, each as a process of its own, and ends them with the
test. Of every proxy that still runs then it is asserted that nothing is queued or running any more
and that no error was logged: a test need not say so itself.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.policies import Spec, policy, write_policy
from tests.support.processes import Proxy
from tests.support.raw_client import Answer, ask
from tests.support.scraping import is_idle, outcomes, scrape
from tests.support.scripted_engine import ScriptedEngine, chatting
from tests.support.waiting import until

IDLE_WITHIN_S = 15.0


class ProxyStarter:
    """Starts proxies whose policies, logs and key files live in one folder."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._count = 0

    async def __call__(
        self,
        upstream: str,
        *options: str,
        documents: Sequence[Spec] = (),
        policy_path: Path | None = None,
        port: int = 0,
        admin_port: int = 0,
    ) -> Proxy:
        """Start one. Without documents: three classes, four seats, no rate limits."""
        self._count += 1
        name = f"serve-{self._count}"
        path = policy_path or write_policy(
            self.folder, *(documents or (policy(),)), name=f"{name}.yaml"
        )
        proxy = Proxy(
            upstream,
            *options,
            logs=self.folder,
            policy=path,
            port=port,
            admin_port=admin_port,
            name=name,
        )
        await self._stack.enter_async_context(proxy)
        self._stack.push_async_callback(check_clean, proxy)
        return proxy


async def check_clean(proxy: Proxy) -> None:
    """Nothing is left in the proxy, and it logged no error. An ended proxy is not asked."""
    if proxy.exit_code is None:
        await until(
            lambda: is_idle(proxy.admin_url), what="all gauges are 0", within_s=IDLE_WITHIN_S
        )
    unexpected = [
        line
        for line in proxy.new_log_lines()
        if _is_error(line) and not any(word in line for word in proxy.expected_errors)
    ]
    assert unexpected == [], "\n".join(unexpected[:5])


def _is_error(line: str) -> bool:
    """Is it what a person on call would be woken by: an error, or no log line at all?"""
    try:
        entry = json.loads(line)
    except ValueError:
        return bool(line.strip())
    return not isinstance(entry, dict) or entry.get("level") in ("error", "critical")


@pytest.fixture
async def start_proxy(tmp_path: Path) -> AsyncIterator[ProxyStarter]:
    """Starts proxies for this test."""
    async with AsyncExitStack() as stack:
        yield ProxyStarter(tmp_path, stack)


@dataclass(frozen=True, slots=True)
class Stand:
    """One proxy before one engine whose script each test chooses."""

    engine: ScriptedEngine
    proxy: Proxy

    async def charged(self) -> dict[str, float]:
        """Tokens charged so far, by kind."""
        samples = await scrape(self.proxy.admin_url)
        kinds = ("prompt", "completion")
        return {k: samples.total("giveway_tenant_tokens_total", kind=k) for k in kinds}

    async def charge_of(self, path: str, body: object) -> tuple[Answer, float, float]:
        """Send one request; its answer and what it was charged: prompt, completion tokens."""
        before = await self.charged()
        finished = sum((await outcomes(self.proxy.admin_url)).values())
        answer = await ask(self.proxy.url, path, body)
        await until(
            lambda: _more_than(self.proxy.admin_url, finished), what="the request is counted"
        )
        after = await self.charged()
        return (
            answer,
            after["prompt"] - before["prompt"],
            after["completion"] - before["completion"],
        )


async def _more_than(admin_url: str, finished: float) -> bool:
    return sum((await outcomes(admin_url)).values()) > finished


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand_of_module(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Stand]:
    """One proxy and one engine for all tests of a module."""
    async with AsyncExitStack() as stack:
        folder = tmp_path_factory.mktemp("stand")
        engine = await stack.enter_async_context(ScriptedEngine(chatting()))
        proxy = await ProxyStarter(folder, stack)(engine.url)
        yield Stand(engine, proxy)


@pytest_asyncio.fixture(loop_scope="module")
async def stand(stand_of_module: Stand) -> AsyncIterator[Stand]:
    """The module's proxy, checked after each test."""
    yield stand_of_module
    await check_clean(stand_of_module.proxy)
