"""Does the anthropic client work through the proxy: answers, streams, and refusals in its shape?"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import anthropic
import pytest

from tests.support.policies import policy, service_class, tenant
from tests.support.processes import Emulator, Proxy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import ask
from tests.support.scraping import scrape

pytestmark = pytest.mark.slow

MODEL = "emulated"


@pytest.fixture
async def emulator(tmp_path: Path) -> AsyncIterator[Emulator]:
    async with Emulator("--model", MODEL, "--speed", "20", logs=tmp_path) as running:
        yield running


@pytest.fixture
async def proxy(emulator: Emulator, start_proxy: ProxyStarter) -> Proxy:
    """A proxy that knows the tenant of the client's key."""
    acme = tenant("acme", maximum_class="standard", keys=["sk-ant-test"], folder=start_proxy.folder)
    return await start_proxy(emulator.url, documents=[policy(seats=16), acme])


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=proxy.url, api_key="sk-ant-test", max_retries=0
    ) as made:
        yield made


async def test_plain_message_is_charged_to_the_keys_tenant(
    client: anthropic.AsyncAnthropic, proxy: Proxy
) -> None:
    """A plain message: text and usage arrive; X-Api-Key finds the tenant and its class."""
    raw = await client.messages.with_raw_response.create(
        model=MODEL, max_tokens=8, messages=[{"role": "user", "content": "Hello"}]
    )
    message = await raw.parse()
    assert raw.headers["x-giveway-tenant"] == "acme"
    assert raw.headers["x-giveway-class"] == "standard"
    assert message.content[0].type == "text"
    assert message.usage.output_tokens == 8
    samples = await scrape(proxy.admin_url)
    charged = samples.value("giveway_tenant_tokens_total", tenant="acme", kind="completion")
    assert charged == 8


async def test_blocking_client_streams_text(proxy: Proxy) -> None:
    """The blocking client's stream helper: text comes in pieces, the final message is whole."""

    def ask() -> tuple[str, anthropic.types.Message]:
        with (
            anthropic.Anthropic(base_url=proxy.url, api_key="sk-ant-test", max_retries=0) as made,
            made.messages.stream(
                model=MODEL, max_tokens=8, messages=[{"role": "user", "content": "Hello"}]
            ) as stream,
        ):
            return "".join(stream.text_stream), stream.get_final_message()

    text, final = await asyncio.to_thread(ask)
    assert text
    assert final.stop_reason == "max_tokens"
    assert final.usage.output_tokens == 8


async def test_async_client_streams_events(client: anthropic.AsyncAnthropic) -> None:
    """The raw events come in the protocol's order."""
    stream = await client.messages.create(
        model=MODEL, max_tokens=8, messages=[{"role": "user", "content": "Hello"}], stream=True
    )
    kinds = [event.type async for event in stream]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


async def test_a_refusal_has_the_clients_error_shape(
    emulator: Emulator, start_proxy: ProxyStarter
) -> None:
    """Over the limit: the client's RateLimitError, Anthropic's body, and our code inside."""
    classes = [service_class("only", limits={"requestsPerSecond": 1, "requestBurst": 1})]
    proxy = await start_proxy(emulator.url, documents=[policy(classes=classes)])
    async with anthropic.AsyncAnthropic(
        base_url=proxy.url, api_key="sk-ant-test", max_retries=0
    ) as client:
        create = client.messages.create
        await create(model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "a"}])
        with pytest.raises(anthropic.RateLimitError) as caught:
            await create(model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "a"}])
    body = caught.value.body
    assert isinstance(body, dict)
    assert body["type"] == "error"
    assert body["error"]["type"] == "rate_limit_error"
    assert body["error"]["code"] == "rate_limited"


async def test_retries_honour_the_hint(emulator: Emulator, start_proxy: ProxyStarter) -> None:
    """The anthropic client's own retries get through a drained bucket as well."""
    classes = [service_class("only", limits={"requestsPerSecond": 1, "requestBurst": 1})]
    proxy = await start_proxy(emulator.url, documents=[policy(classes=classes)])
    async with anthropic.AsyncAnthropic(
        base_url=proxy.url, api_key="sk-ant-test", max_retries=2
    ) as client:
        for _ in range(2):
            message = await client.messages.create(
                model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "a"}]
            )
            assert message.usage.output_tokens == 1


async def test_tokens_can_be_counted(client: anthropic.AsyncAnthropic, proxy: Proxy) -> None:
    """count_tokens passes to the engine, or is refused in the client's shape."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
    answer = await ask(proxy.url, "/v1/messages/count_tokens", body)
    if answer.status == 200:
        counted = await client.messages.count_tokens(
            model=MODEL, messages=[{"role": "user", "content": "Hello"}]
        )
        assert counted.input_tokens > 0
    else:
        assert answer.status == 404
        assert "error" in answer.json()
