"""How does a test get a proxy, and what is looked at when it is done with it?

`start_proxy` starts as many as a test wants, each as a process of its own, and ends them with the
test. Of each of them it is asserted then that nothing is left behind (`aftermath`): a test need not
say so itself.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.aftermath import Aftermath
from tests.support.policies import Spec, policy, write_policy
from tests.support.processes import Proxy
from tests.support.raw_client import Answer, ask
from tests.support.scraping import outcomes, scrape
from tests.support.scripted_engine import ScriptedEngine, chatting
from tests.support.waiting import until


class ProxyStarter:
    """Starts proxies whose policies, logs and key files live in one folder."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._count = 0
        self.aftermaths: dict[str, Aftermath] = {}
        """By the proxy's name."""

    async def __call__(
        self,
        upstream: str,
        *options: str,
        documents: Sequence[Spec] = (),
        policy_path: Path | None = None,
        port: int = 0,
        admin_port: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> Proxy:
        """Start one. Without documents: three classes, four seats, no rate limits."""
        self._count += 1
        name = f"serve-{self._count}"
        path = policy_path
        if path is None and "--policy-document" not in options:
            path = write_policy(self.folder, *(documents or (policy(),)), name=f"{name}.yaml")
        proxy = Proxy(
            upstream,
            *options,
            logs=self.folder,
            policy=path,
            port=port,
            admin_port=admin_port,
            name=name,
            environment=environment,
        )
        await self._stack.enter_async_context(proxy)
        aftermath = await Aftermath.expect(proxy, upstream)
        self.aftermaths[proxy.name] = aftermath
        self._stack.push_async_callback(aftermath.check)
        return proxy


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
    aftermath: Aftermath

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


@asynccontextmanager
async def standing(folder: Path, documents: Sequence[Spec] = ()) -> AsyncIterator[Stand]:
    """One proxy and one engine, for many tests."""
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(ScriptedEngine(chatting()))
        starter = ProxyStarter(folder, stack)
        proxy = await starter(engine.url, documents=documents)
        yield Stand(engine, proxy, starter.aftermaths[proxy.name])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand_of_module(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Stand]:
    """One proxy and one engine for all tests of a module."""
    async with standing(tmp_path_factory.mktemp("stand")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def stand(stand_of_module: Stand) -> AsyncIterator[Stand]:
    """The module's proxy, checked after each test."""
    yield stand_of_module
    await stand_of_module.aftermath.check()
