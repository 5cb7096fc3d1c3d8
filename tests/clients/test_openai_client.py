"""Does the openai client work through the proxy as it does on an engine, retries included?"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest

from tests.support.policies import policy, service_class
from tests.support.processes import Emulator, Proxy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.scraping import outcomes

pytestmark = pytest.mark.slow

MODEL = "emulated"


@pytest.fixture
async def emulator(tmp_path: Path) -> AsyncIterator[Emulator]:
    async with Emulator("--model", MODEL, "--speed", "20", logs=tmp_path) as running:
        yield running


@pytest.fixture
async def proxy(emulator: Emulator, start_proxy: ProxyStarter) -> Proxy:
    return await start_proxy(emulator.url, documents=[policy(seats=16)])


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{proxy.url}/v1", api_key="sk-test", max_retries=0
    ) as made:
        yield made


async def test_blocking_client_gets_a_plain_answer(proxy: Proxy) -> None:
    """The blocking client: content, finish reason and usage are there."""

    def ask() -> openai.types.chat.ChatCompletion:
        with openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="sk-test", max_retries=0) as made:
            return made.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=8
            )

    answer = await asyncio.to_thread(ask)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8


async def test_chat_streams(client: openai.AsyncOpenAI) -> None:
    """A stream without asking for usage has choices in every chunk, and ends."""
    stream = await client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=8, stream=True
    )
    chunks = [chunk async for chunk in stream]
    assert all(len(chunk.choices) == 1 for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "length"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


async def test_chat_streams_with_usage(client: openai.AsyncOpenAI) -> None:
    """A stream that asks for usage gets it in a last chunk without choices."""
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Hello"}],
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8


async def test_completions(client: openai.AsyncOpenAI) -> None:
    """The older endpoint, plain and streamed."""
    plain = await client.completions.create(model=MODEL, prompt="Hello", max_tokens=8)
    assert plain.choices[0].finish_reason == "length"
    stream = await client.completions.create(model=MODEL, prompt="Hello", max_tokens=8, stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream])


async def test_responses(client: openai.AsyncOpenAI) -> None:
    """The responses endpoint, plain and streamed to its last event."""
    plain = await client.responses.create(model=MODEL, input="Hello", max_output_tokens=8)
    assert plain.output_text
    assert plain.usage is not None
    assert plain.usage.output_tokens == 8
    stream = await client.responses.create(
        model=MODEL, input="Hello", max_output_tokens=8, stream=True
    )
    kinds = [event.type async for event in stream]
    assert kinds[0] == "response.created"
    assert "response.output_text.delta" in kinds
    assert kinds[-1] in ("response.completed", "response.incomplete")


async def test_embeddings_and_models(client: openai.AsyncOpenAI) -> None:
    """Embeddings of a list, and the list of models."""
    made = await client.embeddings.create(model=MODEL, input=["Hello", "you"])
    assert [item.index for item in made.data] == [0, 1]
    assert all(item.embedding for item in made.data)
    assert MODEL in [model.id async for model in client.models.list()]


async def test_a_missing_model_is_the_clients_not_found_error(client: openai.AsyncOpenAI) -> None:
    """The engine's own 404 arrives as the client's exception with its text."""
    with pytest.raises(openai.NotFoundError, match="nope"):
        await client.chat.completions.create(
            model="nope", messages=[{"role": "user", "content": "Hello"}]
        )


async def test_fifty_at_once(client: openai.AsyncOpenAI) -> None:
    """50 streams over 16 seats: every one is whole."""

    async def one() -> str | None:
        stream = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=20, stream=True
        )
        return [chunk async for chunk in stream][-1].choices[0].finish_reason

    assert set(await asyncio.gather(*(one() for _ in range(50)))) == {"length"}


async def test_b20_retries_come_after_the_hint_and_succeed(
    emulator: Emulator, start_proxy: ProxyStarter
) -> None:
    """B20: on a drained bucket the client waits as told, tries once more and is served."""
    limits = {"requestsPerSecond": 1, "requestBurst": 1}
    classes = [service_class("only", limits=limits)]
    proxy = await start_proxy(emulator.url, documents=[policy(classes=classes)])
    async with openai.AsyncOpenAI(
        base_url=f"{proxy.url}/v1", api_key="sk-test", max_retries=2
    ) as client:
        started_s = time.monotonic()
        for _ in range(3):
            await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=1
            )
        took_s = time.monotonic() - started_s
    counts = await outcomes(proxy.admin_url)
    assert counts == {"completed": 3, "rate_limited": 2}
    assert 1.9 <= took_s <= 8


async def test_without_retries_the_refusal_is_a_rate_limit_error(
    emulator: Emulator, start_proxy: ProxyStarter
) -> None:
    """The client's exception carries our code, and the header its retries go by."""
    limits = {"requestsPerSecond": 1, "requestBurst": 1}
    classes = [service_class("only", limits=limits)]
    proxy = await start_proxy(emulator.url, documents=[policy(classes=classes)])
    async with openai.AsyncOpenAI(
        base_url=f"{proxy.url}/v1", api_key="sk-test", max_retries=0
    ) as client:
        ask = client.chat.completions.with_raw_response.create
        await ask(model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=1)
        with pytest.raises(openai.RateLimitError) as caught:
            await ask(model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=1)
    assert caught.value.code == "rate_limited"
    assert int(caught.value.response.headers["retry-after"]) >= 1
    assert float(caught.value.response.headers["retry-after-ms"]) > 0
