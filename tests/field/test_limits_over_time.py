"""Do limits hold over time: debts, bursts, hints, headers, and who waits behind whom?"""

import asyncio
import time
from itertools import pairwise

import pytest

from tests.support.lines import CHAT, Line, arrivals, holders, identity, named
from tests.support.metering import level, limited
from tests.support.policies import policy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import Answer, RawClient, ask, chat_body
from tests.support.scraping import queue_has, scrape
from tests.support.scripted_engine import (
    Exchange,
    ScriptedEngine,
    answering,
    chatting,
    probes_first,
)
from tests.support.vllm_answers import chat_answer
from tests.support.waiting import until


async def test_b13_a_request_larger_than_the_bucket_goes_as_debt_or_is_told(
    start_proxy: ProxyStarter,
) -> None:
    """1,500 of 1,000: let in while the bucket is full, else told at once when it can be."""
    data = chat_answer(prompt_tokens=10, completion_tokens=1490)
    async with ScriptedEngine(answering(data)) as engine:
        proxy = await start_proxy(
            engine.url, documents=limited(tokensPerMinute=600, tokenBurst=1000)
        )
        large = chat_body(max_tokens=1500)
        assert (await ask(proxy.url, CHAT, large)).status == 200
        assert -501 <= await level(proxy) <= -500 + 20
        refused = await ask(proxy.url, CHAT, large)
        assert (refused.status, refused.error["code"]) == (429, "rate_limited")
        assert "tokens" in str(refused.error["message"])


@pytest.mark.parametrize("algorithm", ["SLOAware", "WeightedRandom"])
async def test_b13_small_requests_do_not_wait_behind_a_large_one(
    start_proxy: ProxyStarter, algorithm: str
) -> None:
    """With 500 of 1,000 left, one of 1,500 waits for minutes; small ones pass, whoever asks."""
    async with ScriptedEngine(answering(chat_answer(prompt_tokens=10, completion_tokens=490))) as (
        engine
    ):
        (documents,) = limited(
            over_limit="Queue", time_to_live_s=60, tokensPerMinute=60, tokenBurst=1000
        )
        assert isinstance(documents["spec"], dict)
        documents["spec"]["scheduling"] = {"algorithm": algorithm}
        proxy = await start_proxy(engine.url, documents=[documents])
        assert (await ask(proxy.url, CHAT, named("first", max_tokens=490))).status == 200
        engine.script = answering(chat_answer(prompt_tokens=5, completion_tokens=5))
        line = Line(proxy)
        await line.add("large", tenant="A", max_tokens=1500)
        for tenant in ("A", "B"):
            small = [
                ask(proxy.url, CHAT, named("small", max_tokens=5), headers=identity(tenant))
                for _ in range(5)
            ]
            answers = await asyncio.gather(*small)
            assert [each.status for each in answers] == [200] * 5, tenant
        assert arrivals(engine) == ["first", *["small"] * 10]
        line.tasks[0].cancel()


async def test_b15_a_debt_lasts_as_long_as_the_hint_says(start_proxy: ProxyStarter) -> None:
    """One answer takes three times the bucket; the hint is debt / rate, and then it flows again."""
    rate_per_s, burst, used = 500, 300, 900
    async with ScriptedEngine(
        answering(chat_answer(prompt_tokens=10, completion_tokens=used - 10))
    ) as engine:
        proxy = await start_proxy(
            engine.url, documents=limited(tokensPerMinute=60 * rate_per_s, tokenBurst=burst)
        )
        assert (await ask(proxy.url, CHAT, chat_body(max_tokens=16))).status == 200
        engine.script = answering(chat_answer(prompt_tokens=10, completion_tokens=10))
        overshot_s = time.monotonic()
        refused = await ask(proxy.url, CHAT, chat_body(max_tokens=16))
        assert refused.status == 429
        hint_s = int(refused.header("retry-after-ms") or 0) / 1000
        expected_s = (used - burst) / rate_per_s
        assert expected_s - 0.3 <= hint_s <= expected_s + 0.1
        assert int(refused.header("retry-after") or 0) == -(-hint_s // 1)
        due_s = overshot_s + hint_s
        client = await RawClient.open(proxy.url)
        statuses: list[int] = []
        while time.monotonic() < due_s - 0.2:
            statuses.append((await client.post(CHAT, chat_body(max_tokens=16))).status)
        assert set(statuses) == {429}
        now_s = time.monotonic()
        await client.pause(max(0.0, due_s + 0.1 - now_s))
        assert (await client.post(CHAT, chat_body(max_tokens=16))).status == 200
        await client.close()


async def test_b21_the_remaining_quota_falls_and_is_what_the_bucket_holds(
    start_proxy: ProxyStarter,
) -> None:
    """Ten calls of 100: never up, never below 0; reset is what is missing / rate."""
    data = chat_answer(prompt_tokens=60, completion_tokens=40)
    async with ScriptedEngine(answering(data)) as engine:
        proxy = await start_proxy(
            engine.url,
            documents=limited(
                tokensPerMinute=60, tokenBurst=1000, requestsPerMinute=60, requestBurst=8
            ),
        )
        answers = [await ask(proxy.url, CHAT, chat_body(max_tokens=40)) for _ in range(10)]
        for kind, limit in (("requests", 8), ("tokens", 1000)):
            remaining = [_number(each, f"x-ratelimit-remaining-{kind}") for each in answers]
            # One permit and one token come back each second of a test that takes less than two.
            assert all(later <= earlier + 1 for earlier, later in pairwise(remaining))
            assert min(remaining) >= 0
            assert {_number(each, f"x-ratelimit-limit-{kind}") for each in answers} == {limit}
            missing = limit - remaining[-1]
            reset = str(answers[-1].header(f"x-ratelimit-reset-{kind}"))
            assert abs(_seconds(reset) - missing) <= 2, reset
        assert answers[-1].status == 429
        passed = sum(each.status == 200 for each in answers)
        assert abs(await level(proxy) - (1000 - 100 * passed)) < 20
        samples = await scrape(proxy.admin_url)
        assert samples.total("giveway_tenant_tokens_total") == 100 * passed


def _number(answer: Answer, name: str) -> int:
    return int(answer.header(name) or "-1")


def _seconds(text: str) -> float:
    """`7.66s`, `6m0s`."""
    minutes, _, seconds = text.rpartition("m") if "ms" not in text else ("", "", "0s")
    return 60 * float(minutes or 0) + float(seconds.removesuffix("s"))


@pytest.mark.slow
async def test_b24_after_an_idle_time_no_more_than_the_burst_and_the_rate(
    start_proxy: ProxyStarter,
) -> None:
    """Flooded at the start and again after an idle second: at most burst + rate x time, both times.

    The bucket is full at the start.
    """
    burst, rate_per_s = 10, 20
    async with ScriptedEngine(answering(chat_answer())) as engine:
        proxy = await start_proxy(
            engine.url, documents=limited(requestsPerSecond=rate_per_s, requestBurst=burst)
        )
        async with await RawClient.open(proxy.url) as client:
            for _ in range(2):
                started_s = time.monotonic()
                passed = 0
                while time.monotonic() < started_s + 1:
                    passed += (await client.post(CHAT, chat_body())).status == 200
                elapsed_s = time.monotonic() - started_s
                assert burst <= passed <= burst + rate_per_s * elapsed_s + 1
                await client.pause(1)


@pytest.mark.slow
async def test_c19_giant_prompts_do_not_take_more_than_their_share(
    start_proxy: ProxyStarter,
) -> None:
    """Prompts of 16,000 and of 200 tokens, both backlogged: tokens at most 1.2 : 1."""
    tokens = {"A": 16_000, "B": 200}
    counts = {"A": 8, "B": 640}

    async def run(exchange: Exchange) -> None:
        name = exchange.request.json()["user"]
        await exchange.send(chat_answer(prompt_tokens=tokens[str(name)], completion_tokens=1))

    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, documents=[policy(seats=2)])
        holding = await holders(proxy, engine, 2)
        engine.script = probes_first(run)
        tasks = [
            asyncio.create_task(
                ask(
                    proxy.url,
                    CHAT,
                    chat_body(text="word" * tokens[name], max_tokens=1, user=name),
                    headers=identity(name, "standard"),
                )
            )
            for name, count in counts.items()
            for _ in range(count)
        ]
        await until(lambda: queue_has(proxy.admin_url, sum(counts.values())), what="all wait")
        gate.set()
        await asyncio.gather(*holding, *tasks)
        order = [str(seen.json()["user"]) for seen in engine.work[2:]]
        last = {name: max(at for at, each in enumerate(order) if each == name) for name in tokens}
        both = order[: min(last.values()) + 1]
        ratio = both.count("A") * tokens["A"] / (both.count("B") * tokens["B"])
        assert 1 / 1.2 <= ratio <= 1.2
