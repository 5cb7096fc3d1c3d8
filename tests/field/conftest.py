"""Fixtures of the field reports' tests."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.metering import Meter, limited
from tests.support.proxy_fixtures import stand, stand_of_module, standing, start_proxy

__all__ = ["stand", "stand_of_module", "start_proxy"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def meter_of_module(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Meter]:
    """A proxy whose only class has a large bucket, for all tests of a module."""
    documents = limited(tokensPerMinute=60, tokenBurst=10_000_000)
    async with standing(tmp_path_factory.mktemp("meter"), documents) as made:
        yield Meter(made)


@pytest_asyncio.fixture(loop_scope="module")
async def meter(meter_of_module: Meter) -> AsyncIterator[Meter]:
    """The module's metered proxy, checked after each test."""
    yield meter_of_module
    await meter_of_module.stand.aftermath.check()
