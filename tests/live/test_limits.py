"""Are rates, token budgets and refusals what the policy says, whatever clients do?"""

import asyncio
import time

import pytest

from tests.support.policies import policy, service_class, tenant
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import Answer, RawClient, ask, chat_body
from tests.support.scraping import outcomes, scrape
from tests.support.scripted_engine import (
    Exchange,
    ScriptedEngine,
    answering,
    chatting,
    probes_first,
)
from tests.support.vllm_answers import chat_answer, chat_events, error_answer, stream_head
from tests.support.waiting import until

CHAT = "/v1/chat/completions"


def limited(**limits: int) -> list[dict[str, object]]:
    """A policy with one class that has these limits."""
    return [policy(classes=[service_class("only", limits=limits)], seats=64)]


def _statuses(answers: list[Answer]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for answer in answers:
        counts[answer.status] = counts.get(answer.status, 0) + 1
    return counts


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_b01_streams_are_metered_like_plain_answers(
    start_proxy: ProxyStarter, stream: bool
) -> None:
    """B01: a budget of 1,000 tokens lets five calls of 200 tokens pass; the sixth is refused."""
    async with ScriptedEngine(_two_hundred_tokens) as engine:
        engine.script = probes_first(_two_hundred_tokens)
        proxy = await start_proxy(
            engine.url, documents=limited(tokensPerMinute=1000, tokenBurst=1000)
        )
        answers = [
            await ask(proxy.url, CHAT, chat_body(stream=stream, max_tokens=150)) for _ in range(6)
        ]
        assert [answer.status for answer in answers] == [200] * 5 + [429]
        assert answers[-1].error["code"] == "rate_limited"
        assert 1 <= int(answers[-1].header("retry-after") or 0) <= 60
        samples = await scrape(proxy.admin_url)
        assert samples.total("giveway_tenant_tokens_total") == 1000


async def _two_hundred_tokens(exchange: Exchange) -> None:
    """50 prompt and 150 output tokens, whatever was asked."""
    if not exchange.request.json().get("stream"):
        await exchange.send(chat_answer(prompt_tokens=50, completion_tokens=150))
        return
    await exchange.send(stream_head())
    await exchange.send_events(chat_events(["x"] * 150, prompt_tokens=50, include_usage=True))
    await exchange.end()


@pytest.mark.parametrize("failure", ["503", "refused"])
async def test_b10_reservations_are_corrected_at_the_end(
    start_proxy: ProxyStarter, failure: str
) -> None:
    """B10: 20 requests reserve 4,096 tokens each; half use 20, half fail; only use is charged."""
    burst = 200_000

    async def half(exchange: Exchange) -> None:
        if "fail" not in exchange.request.body.decode():
            await exchange.send(chat_answer(prompt_tokens=10, completion_tokens=10))
        elif failure == "503":
            await exchange.send(error_answer(503, "Service Unavailable", "busy"))
        else:
            exchange.reset()

    async with ScriptedEngine(probes_first(half)) as engine:
        proxy = await start_proxy(
            engine.url,
            documents=[
                policy(
                    classes=[
                        service_class(
                            "only",
                            limits={"tokensPerMinute": 60, "tokenBurst": burst},
                            time_to_live_s=2,
                        )
                    ],
                    seats=64,
                )
            ],
        )
        texts = ["use"] * 10 + ["fail"] * 10
        answers = await asyncio.gather(
            *(ask(proxy.url, CHAT, chat_body(max_tokens=4096, text=text)) for text in texts)
        )
        assert sum(answer.status == 200 for answer in answers) == 10
        level = await _token_level(proxy.admin_url)
        assert burst - 200 <= level + 1 <= burst - 200 + 0.01 * burst


async def _token_level(admin_url: str) -> float:
    """The level of the only class's token bucket, from the status page."""
    status = (await ask(admin_url, "/status")).json()
    found = list(_levels(status))
    assert found, status
    return found[0]


def _levels(value: object) -> "list[float]":
    """Every bucket level under a key that names tokens, in order."""
    found: list[float] = []
    if isinstance(value, dict):
        bucket = value.get("tokens")
        if isinstance(bucket, dict) and isinstance(bucket.get("level"), int | float):
            found.append(float(bucket["level"]))
        for item in value.values():
            found += _levels(item)
    elif isinstance(value, list):
        for item in value:
            found += _levels(item)
    return found


@pytest.mark.slow
async def test_b18_a_burst_in_one_instant_passes_exactly_the_burst(
    start_proxy: ProxyStarter,
) -> None:
    """B18: of 200 calls at once exactly the burst of 10, and what refills, reach the engine."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(
            engine.url, documents=limited(requestsPerSecond=1, requestBurst=10)
        )
        clients = [await RawClient.open(proxy.url) for _ in range(200)]
        started_s = time.monotonic()
        answers = await asyncio.gather(*(client.post(CHAT, chat_body()) for client in clients))
        took_s = time.monotonic() - started_s
        for client in clients:
            await client.close()
        passed = _statuses(list(answers))[200]
        assert 10 <= passed <= 10 + took_s + 1e-9
        assert len(engine.work) == passed
        assert (await outcomes(proxy.admin_url))["rate_limited"] == 200 - passed


@pytest.mark.slow
async def test_b20_retry_hints_are_true(start_proxy: ProxyStarter) -> None:
    """B20: every refusal has whole seconds from 1 to 60; after them a retry is let in."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(
            engine.url, documents=limited(requestsPerSecond=1, requestBurst=2)
        )
        answers = [await ask(proxy.url, CHAT, chat_body()) for _ in range(4)]
        refused = next(answer for answer in answers if answer.status == 429)
        hint = refused.header("retry-after") or ""
        milliseconds = int(refused.header("retry-after-ms") or -1)
        assert hint.isdigit()
        assert 1 <= int(hint) <= 60
        assert 0 < milliseconds <= int(hint) * 1000
        due_s = time.monotonic() + milliseconds / 1000
        await until(lambda: time.monotonic() >= due_s, what="the hint is over")
        assert (await ask(proxy.url, CHAT, chat_body())).status == 200


@pytest.mark.slow
@pytest.mark.parametrize("trusted", [False, True], ids=["default", "named-headers-trusted"])
async def test_g01_a_new_tenant_header_buys_no_new_budget(
    start_proxy: ProxyStarter, trusted: bool
) -> None:
    """G01: one key with 500 tenant headers has one budget, whether or not headers are trusted."""
    acme = tenant(
        "acme",
        maximum_class="realtime",
        keys=["sk-acme-1"],
        folder=start_proxy.folder,
        limits={"requestsPerSecond": 1, "requestBurst": 10},
    )
    names = ("X-Giveway-Tenant", "X-Giveway-Class") if trusted else ()
    async with ScriptedEngine(answering(chat_answer())) as engine:
        proxy = await start_proxy(
            engine.url, documents=[policy(seats=64, trusted_headers=names), acme]
        )
        started_s = time.monotonic()
        async with await RawClient.open(proxy.url) as client:
            statuses = [
                (
                    await client.post(
                        CHAT,
                        chat_body(),
                        headers={
                            "Authorization": "Bearer sk-acme-1",
                            "X-Giveway-Tenant": f"tenant-{index}",
                        },
                    )
                ).status
                for index in range(500)
            ]
        took_s = time.monotonic() - started_s
        assert 10 <= statuses.count(200) <= 11 + took_s
        assert statuses.count(200) + statuses.count(429) == 500
