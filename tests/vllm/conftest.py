"""Fixtures of the tests on a real vLLM: one engine for a module, and proxies before it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.support.proxy_fixtures import ProxyStarter
from tests.vllm.real_engine import TINY, Model, NoEngineError, RealEngine
from tests.vllm.tee import Tee


class EngineWish(NamedTuple):
    """The engine that a module wants, as its `ENGINE`."""

    options: Sequence[str]
    model: Model = TINY


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RealEngine]:
    """The module's engine. Skips, with the reason, where no vLLM can be had."""
    wish: EngineWish = request.module.ENGINE
    logs = tmp_path_factory.mktemp("vllm")
    running = RealEngine(*wish.options, logs=logs, model=wish.model)
    try:
        await running.__aenter__()
    except NoEngineError as error:
        pytest.skip(f"NOTHING WAS PROVED ON A REAL vLLM: {error}")
    try:
        yield running
    finally:
        await running.__aexit__()


@pytest_asyncio.fixture(loop_scope="module")
async def tee(engine: RealEngine) -> AsyncIterator[Tee]:
    """What goes between a proxy and the engine."""
    async with Tee(engine.url) as relay:
        yield relay


@pytest_asyncio.fixture(loop_scope="module")
async def start_proxy(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[ProxyStarter]:
    """Starts proxies for this test; each is checked at its end."""
    async with AsyncExitStack() as stack:
        yield ProxyStarter(tmp_path_factory.mktemp("proxy"), stack)
