"""What may the sender still use?"""

from pathlib import Path

import pytest
from giveway_admission.quota_headers import quota_lines, show_duration
from giveway_scheduler import BucketStatistics, Quota

from tests.admission.data_plane import CHAT, running
from tests.support.policies import policy, service_class, tenant
from tests.support.raw_client import ask, chat_body
from tests.support.scripted_engine import ScriptedEngine, answering
from tests.support.vllm_answers import chat_answer


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1.0, b"0s"),
        (0.0, b"0s"),
        (0.0101, b"11ms"),
        (1.0, b"1s"),
        (7.66, b"7.66s"),
        (59.5, b"59.5s"),
        (360.0, b"6m0s"),
        (7380.5, b"2h3m1s"),
        (1e12, b"24h0m0s"),
    ],
)
def test_durations_look_as_openais(seconds: float, shown: bytes) -> None:
    """The format that OpenAI documents for its reset headers, rounded up and bounded."""
    assert show_duration(seconds) == shown


def test_debt_is_shown_as_nothing_left_and_a_later_reset() -> None:
    """B21: 10 of 100 owed, 5 a second: remaining 0, full again after 110 / 5 = 22 s."""
    bucket = BucketStatistics(level=-10.0, burst=100.0, per_s=5.0)
    assert quota_lines(Quota(requests=None, tokens=bucket)) == (
        b"x-ratelimit-limit-tokens: 100\r\n"
        b"x-ratelimit-remaining-tokens: 0\r\n"
        b"x-ratelimit-reset-tokens: 22s\r\n"
    )


async def test_b21_the_remaining_quota_falls_and_is_that_of_the_tighter_bucket(
    tmp_path: Path,
) -> None:
    """B21: class 1,000 requests, tenant 10: the tenant's is told, and falls with each request."""
    documents = (
        policy(classes=(service_class("only", limits={"requestsPerSecond": 1000}),)),
        tenant(
            "acme",
            maximum_class="only",
            header=("X-Tenant", "acme"),
            limits={"requestsPerSecond": 1, "requestBurst": 10, "tokensPerMinute": 60_000},
        ),
    )
    engine_answer = chat_answer(prompt_tokens=10, completion_tokens=90)
    async with (
        ScriptedEngine(answering(engine_answer)) as engine,
        running(engine.url, tmp_path, *documents) as server,
    ):
        headers = {"X-Tenant": "acme"}
        told = [
            await ask(server.data_url, CHAT, chat_body(max_tokens=90), headers=headers)
            for _ in range(3)
        ]
        other = await ask(server.data_url, CHAT, chat_body())
    remaining = [int(answer.header("x-ratelimit-remaining-requests") or -1) for answer in told]
    assert remaining == [9, 8, 7]
    assert {answer.header("x-ratelimit-limit-requests") for answer in told} == {"10"}
    tokens = [int(answer.header("x-ratelimit-remaining-tokens") or -1) for answer in told]
    assert tokens == sorted(tokens, reverse=True)
    assert tokens[0] > tokens[2]
    assert other.header("x-ratelimit-limit-requests") == "1000"
    assert other.header("x-ratelimit-limit-tokens") is None


async def test_without_limits_nothing_is_told(tmp_path: Path) -> None:
    """No limit, no header."""
    async with (
        ScriptedEngine(answering(chat_answer())) as engine,
        running(engine.url, tmp_path) as server,
    ):
        answer = await ask(server.data_url, CHAT, chat_body())
        assert not [name for name, _ in answer.head.headers if name.startswith("x-ratelimit")]
