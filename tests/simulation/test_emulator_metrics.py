"""What the emulator tells Prometheus."""

from giveway_simulation.emulator import Emulator
from prometheus_client.parser import text_string_to_metric_families

from tests.simulation.conftest import StartEmulator
from tests.simulation.engine_fixtures import chat, url_of
from tests.support.raw_client import RawClient, request
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
LABELS = {"engine": "0", "model_name": "emulated"}


async def scrape(emulator: Emulator) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """All samples, by name and labels."""
    async with await RawClient.open(url_of(emulator)) as client:
        answer = await client.get("/metrics")
    assert answer.header("content-type") == "text/plain; version=1.0.0; charset=utf-8"
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return (f"vllm:{name}", frozenset((LABELS | labels).items()))


async def test_finished_request_is_in_every_family_once(emulator: Emulator) -> None:
    """10 tokens after a prompt of 11: counters, and one observation in each histogram."""
    async with await RawClient.open(url_of(emulator)) as client:
        answer = await client.post(CHAT, chat(max_tokens=10, text="word" * 4))
        assert answer.status == 200
    samples = await scrape(emulator)
    assert samples[key("prompt_tokens_total")] == 11  # 4 + 4 for the message + 3 for the answer
    assert samples[key("generation_tokens_total")] == 10
    assert samples[key("request_success_total", finished_reason="length")] == 1
    assert samples[key("num_requests_running")] == 0
    for name in (
        "request_prompt_tokens",
        "request_generation_tokens",
        "time_to_first_token_seconds",
        "request_time_per_output_token_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_inference_time_seconds",
        "request_num_preemptions",
    ):
        assert samples[key(f"{name}_count")] == 1, name
    assert samples[key("inter_token_latency_seconds_count")] == 9
    assert samples[key("iteration_tokens_total_count")] == 10
    assert samples[key("iteration_tokens_total_sum")] == 11 + 10
    assert samples[key("request_generation_tokens_sum")] == 10


async def test_aborted_request_is_in_no_family_of_requests(emulator: Emulator) -> None:
    """As behind vLLM's Python frontend: its tokens count, the request does not."""
    async with await RawClient.open(url_of(emulator)) as client:
        await client.send(request("POST", CHAT, body=chat(max_tokens=3000, stream=True)))
        await client.read_head()
        await client.read_chunk()
        client.reset()
        await until(lambda: emulator.engine.statistics().running == 0, what="it is gone")
    samples = await scrape(emulator)
    assert samples[key("generation_tokens_total")] >= 1
    assert samples[key("e2e_request_latency_seconds_count")] == 0
    assert (
        sum(value for (name, _), value in samples.items() if name == "vllm:request_success_total")
        == 0
    )
    assert samples[key("time_to_first_token_seconds_count")] == 1


async def test_gauges_follow_seats_queue_and_cache(start_emulator: StartEmulator) -> None:
    """Two seats, three requests: 2 running, 1 waiting, the cache in use; 0 afterwards."""
    emulator = await start_emulator(step_ms=20.0, seats=2, kv_tokens=4096)
    clients = [await RawClient.open(url_of(emulator)) for _ in range(3)]
    for client in clients:
        await client.send(request("POST", CHAT, body=chat(max_tokens=20)))
    await until(lambda: emulator.engine.statistics().waiting == 1, what="one waits")
    samples = await scrape(emulator)
    assert samples[key("num_requests_running")] == 2
    assert samples[key("num_requests_waiting")] == 1
    assert samples[key("num_requests_waiting_by_reason", reason="capacity")] == 1
    assert 0 < samples[key("kv_cache_usage_perc")] < 0.1
    for client in clients:
        assert (await client.answer()).status == 200
        await client.close()
    samples = await scrape(emulator)
    assert samples[key("num_requests_running")] == samples[key("kv_cache_usage_perc")] == 0
    handled = {"handler": CHAT, "method": "POST", "status": "2xx"}
    assert samples[("http_requests_total", frozenset(handled.items()))] == 3


async def test_preemptions_are_counted(start_emulator: StartEmulator) -> None:
    """Two answers that outgrow the cache together: one starts anew, both get all their tokens."""
    emulator = await start_emulator(kv_tokens=160, max_model_len=128)
    clients = [await RawClient.open(url_of(emulator)) for _ in range(2)]
    for client in clients:
        await client.send(request("POST", CHAT, body=chat(max_tokens=90)))
    for client in clients:
        usage = (await client.answer()).json()["usage"]
        assert isinstance(usage, dict)
        assert usage["completion_tokens"] == 90
        await client.close()
    samples = await scrape(emulator)
    assert samples[key("num_preemptions_total")] >= 1
    assert samples[key("request_num_preemptions_sum")] >= 1
