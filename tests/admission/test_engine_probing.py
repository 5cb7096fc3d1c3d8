"""Is the engine there?"""

from dataclasses import replace

import pytest
from giveway_admission.engine_probing import EngineProbe, Health, ask_health
from giveway_admission.settings import ProxySettings
from giveway_admission.upstreams import parse_upstream

from tests.support.scripted_engine import ScriptedEngine, answering, chatting, probes_first
from tests.support.vllm_answers import response
from tests.support.waiting import until

FAST = ProxySettings(upstream="", probe_first_s=0.01, probe_longest_s=0.02, probe_interval_s=0.02)


@pytest.mark.parametrize(
    ("answer", "health", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Health.ANSWERS, ""),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", Health.ANSWERS, ""),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", Health.GONE, "503 to GET /health"),
        (b"SSH-2.0-OpenSSH\r\n", Health.GONE, "does not speak HTTP/1"),
        (b"x" * 100_000, Health.GONE, "does not speak HTTP/1"),
    ],
    ids=["fine", "no-such-path", "broken", "not-http", "flood"],
)
async def test_everything_but_a_server_error_counts_as_there(
    answer: bytes, health: Health, reason: str
) -> None:
    """An engine without a health path is there; one that says 503, or is none, is not, and why is
    told."""

    async def say(exchange: object) -> None:
        await exchange.send(answer)  # type: ignore[attr-defined]

    async with ScriptedEngine(say) as engine:
        found = await ask_health(parse_upstream(engine.url))
        assert found.health is health
        assert reason in found.reason


async def test_nobody_listening_counts_as_gone() -> None:
    """A refused connection is an answer too, and a name that nobody knows; the log says which."""
    async with ScriptedEngine(chatting()) as engine:
        upstream = parse_upstream(engine.url)
    assert await ask_health(upstream) == (Health.GONE, "Connection refused")
    unknown = await ask_health(parse_upstream("http://no-such-engine.invalid:8000"))
    assert unknown.health in (Health.GONE, Health.SILENT)
    assert unknown.reason


async def test_changes_are_told_once() -> None:
    """Up, down by its own words, up again: three calls, whatever is asked in between."""
    told: list[bool] = []
    async with ScriptedEngine(chatting()) as engine:
        upstream = parse_upstream(engine.url)
        probe = EngineProbe(upstream, replace(FAST, upstream=engine.url), changed=told.append)
        assert not probe.engine_up
        probe.start()
        await until(lambda: told == [True], what="it is there")
        sick = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"

        async def say_sick(exchange: object) -> None:
            await exchange.send(sick)  # type: ignore[attr-defined]

        engine.script = say_sick
        await until(lambda: told == [True, False], what="it is gone")
        engine.script = probes_first(answering(response(b"")))
        await until(lambda: told == [True, False, True], what="it is back")
        probe.close()


async def test_a_suspicion_counts_until_the_engine_has_answered_again() -> None:
    """It is told at once, and asked for after the first wait, not before."""
    told: list[bool] = []
    async with ScriptedEngine(chatting()) as engine:
        upstream = parse_upstream(engine.url)
        settings = replace(FAST, upstream=engine.url, probe_interval_s=60.0)
        probe = EngineProbe(upstream, settings, changed=told.append)
        probe.start()
        await until(lambda: told == [True], what="it is there")
        probe.suspect()
        probe.suspect()
        assert told == [True, False]
        assert not probe.engine_up
        await until(lambda: told == [True, False, True], what="it has answered")
        probe.close()
