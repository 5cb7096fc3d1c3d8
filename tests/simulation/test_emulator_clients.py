"""The real client libraries talk to the emulator as they talk to vLLM."""

import anthropic
import openai
import pytest
from giveway_simulation.emulator import Emulator

from tests.simulation.conftest import StartEmulator
from tests.simulation.engine_fixtures import url_of

HELLO = "hello there"


@pytest.fixture
async def client(emulator: Emulator) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url_of(emulator)}/v1", api_key="none", max_retries=0)


async def test_openai_client_reads_chat_plain_and_streamed(client: openai.AsyncOpenAI) -> None:
    """The same words both ways, and the usage it asked for."""
    async with client:
        plain = await client.chat.completions.create(
            model="emulated", messages=[{"role": "user", "content": HELLO}], max_tokens=6, seed=1
        )
        stream = await client.chat.completions.create(
            model="emulated",
            messages=[{"role": "user", "content": HELLO}],
            max_tokens=6,
            seed=1,
            stream=True,
            stream_options={"include_usage": True},
        )
        text, usage = "", None
        async for chunk in stream:
            text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            usage = chunk.usage or usage
    assert plain.choices[0].message.content == text
    assert len(text) == 24  # six tokens of four bytes
    assert plain.choices[0].finish_reason == "length"
    assert usage is not None
    assert usage.completion_tokens == 6


async def test_openai_client_reads_completions_responses_embeddings_and_models(
    client: openai.AsyncOpenAI,
) -> None:
    """Each parses into the library's own types."""
    async with client:
        completion = await client.completions.create(
            model="emulated", prompt=HELLO, max_tokens=3, echo=True
        )
        response = await client.responses.create(model="emulated", input=HELLO, max_output_tokens=3)
        embeddings = await client.embeddings.create(model="emulated", input=[HELLO, "you"])
        models = await client.models.list()
    assert completion.choices[0].text.startswith(HELLO)
    assert len(response.output_text) == 12
    assert [len(each.embedding) for each in embeddings.data] == [64, 64]
    assert sum(value**2 for value in embeddings.data[0].embedding) == pytest.approx(1.0)
    assert [model.id for model in models.data] == ["emulated"]


async def test_openai_client_raises_its_own_errors(client: openai.AsyncOpenAI) -> None:
    """By status: 404 for the model, 400 for the value."""
    async with client:
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await client.completions.create(model="nope", prompt=HELLO)
        with pytest.raises(openai.BadRequestError, match="must be at least 1"):
            await client.completions.create(model="emulated", prompt=HELLO, max_tokens=0)


async def test_openai_client_streams_responses(client: openai.AsyncOpenAI) -> None:
    """The events build up to the same text as the last one tells."""
    text, final = "", ""
    async with client:
        stream = await client.responses.create(
            model="emulated", input=HELLO, max_output_tokens=5, stream=True
        )
        async for event in stream:
            if event.type == "response.output_text.delta":
                text += event.delta
            elif event.type == "response.completed":
                final = event.response.output_text
    assert text == final
    assert len(text) == 20


async def test_anthropic_client_reads_messages_plain_and_streamed(
    start_emulator: StartEmulator,
) -> None:
    """Stop reason and usage included."""
    emulator = await start_emulator()
    async with anthropic.AsyncAnthropic(
        base_url=url_of(emulator), api_key="none", max_retries=0
    ) as client:
        plain = await client.messages.create(
            model="emulated", messages=[{"role": "user", "content": HELLO}], max_tokens=4
        )
        async with client.messages.stream(
            model="emulated", messages=[{"role": "user", "content": HELLO}], max_tokens=4
        ) as stream:
            streamed = await stream.get_final_message()
    assert plain.stop_reason == streamed.stop_reason == "max_tokens"
    assert plain.usage.output_tokens == streamed.usage.output_tokens == 4
    assert len(streamed.content) == 1
