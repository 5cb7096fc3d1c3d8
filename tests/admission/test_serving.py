"""How do the parts become a running proxy?"""

import json
import logging
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from giveway_admission.serving import PortTakenError, Server
from giveway_admission.settings import ClientCredentials
from giveway_policy.faults import PolicyError

from tests.admission.data_plane import CHAT, LOCAL, posted, running
from tests.support.policies import policy, tenant, write_policy
from tests.support.processes import GivewayProcess, Proxy
from tests.support.raw_client import ask, chat_body
from tests.support.scraping import parse_samples
from tests.support.scripted_engine import ScriptedEngine, answering, chatting, silent
from tests.support.vllm_answers import error_answer
from tests.support.waiting import until


async def test_without_a_policy_the_built_in_classes_hold(tmp_path: Path) -> None:
    """Fail static: it serves, and the page says that nobody gave a policy."""
    async with (
        ScriptedEngine(chatting()) as engine,
        Server(replace(LOCAL, upstream=engine.url)) as server,
    ):
        await until(lambda: server.engine_up, what="the engine answers")
        assert (await ask(server.data_url, CHAT, chat_body())).status == 200
        assert server.metrics.facts.built_in
        assert server.metrics.facts.class_names == ("realtime", "standard", "batch")


@pytest.mark.parametrize("taken", ["data", "admin"])
async def test_a_taken_port_is_named_with_what_to_do(tmp_path: Path, taken: str) -> None:
    """And nothing of what was started before is left."""
    async with ScriptedEngine(chatting()) as engine:
        settings = replace(LOCAL, upstream=engine.url)
        if taken == "data":
            settings = replace(settings, port=engine.port)
        else:
            settings = replace(settings, admin_port=engine.port)
        flag = "--port" if taken == "data" else "--admin-port"
        with pytest.raises(PortTakenError, match=f"127.0.0.1:{engine.port}: .*{flag} "):
            async with Server(settings):
                pass
        await until(lambda: engine.open_connections == 0, what="no probe is left")


async def test_a_changed_policy_file_takes_effect(tmp_path: Path) -> None:
    """D14: within two seconds, without a restart; a bad one is told and changes nothing."""
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, policy(seats=3)) as server,
    ):
        assert server.statistics().seats == 3
        write_policy(tmp_path, policy(seats=7))
        await until(lambda: server.statistics().seats == 7, what="the change is in force")
        write_policy(tmp_path, policy(algorithm="Coin"))
        await until(
            lambda: b'giveway_policy_rejected_total{reason="schema"} 1' in server.metrics.render(),
            what="the fault is counted",
        )
        assert server.statistics().seats == 7
        (fault,) = server.policy_faults
        assert "Coin" in fault.reason
        write_policy(tmp_path, policy(seats=7))
        await until(lambda: server.policy_faults == (), what="it is without faults again")


async def test_a_fault_that_stays_is_counted_once(tmp_path: Path) -> None:
    """Another one that comes beside it does not make it a new one."""
    bad = policy(algorithm="Coin")
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, policy()) as server,
    ):
        write_policy(tmp_path, bad)
        await until(lambda: _rejected(server, "schema") == 1, what="the fault is counted")
        write_policy(tmp_path, bad, tenant("x", maximum_class="nowhere"))
        await until(lambda: _rejected(server, "meaning") == 1, what="the other one is, too")
        assert _rejected(server, "schema") == 1


def _rejected(server: Server, reason: str) -> float:
    page = server.metrics.render().decode()
    return parse_samples(page).value("giveway_policy_rejected_total", reason=reason)


async def test_one_of_several_policies_is_chosen_by_name(tmp_path: Path) -> None:
    """Without a name the start says which there are."""
    several = policy(seats=3, name="one"), policy(seats=5, name="other")
    settings = replace(
        LOCAL, upstream="http://127.0.0.1:1", policy=write_policy(tmp_path, *several)
    )
    with pytest.raises(
        PolicyError, match=r"several SLOPolicies: llm/one, llm/other .*--policy-name"
    ):
        async with Server(settings):
            pass
    async with Server(replace(settings, policy_name="other")) as server:
        assert server.statistics().seats == 5


async def test_an_engine_that_asks_for_a_key_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where clients' keys stay here, who has set one in the engine is told what to do."""
    async with (
        ScriptedEngine(answering(error_answer(401, "Unauthorized", "no key"))) as engine,
        running(
            engine.url,
            tmp_path,
            settings=replace(LOCAL, client_credentials=ClientCredentials.DROP),
        ) as server,
    ):
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert (await ask(server.data_url, CHAT, chat_body())).status == 401
    told = [record for record in caplog.records if record.message == "engine asks for a key"]
    assert len(told) == 1


@pytest.mark.slow
async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """The first drains and would wait for the running answer; the second cuts it. Exit code 0."""
    one_seat = write_policy(tmp_path, policy(seats=1))
    async with (
        ScriptedEngine(silent()) as engine,
        Proxy(engine.url, logs=tmp_path, policy=one_seat) as proxy,
    ):
        client = await posted(proxy.url)
        await until(lambda: engine.busy == 1, what="one runs")
        proxy.signal(signal.SIGTERM)
        late = await until(
            lambda: _refused(proxy.url), what="the first signal was understood", within_s=10
        )
        assert late
        assert proxy.exit_code is None
        proxy.signal(signal.SIGTERM)
        assert await proxy.exited(within_s=10) == 0
        assert await client.read_until_close() == b""
        await client.close()


async def _refused(url: str) -> bool:
    """Whether a newcomer hears that the proxy ends; before that it hears that its wait is over."""
    answer = await ask(url, CHAT, chat_body(max_tokens=1), headers={"X-Giveway-Timeout-Ms": "1"})
    return answer.error["code"] == "draining"


@pytest.mark.slow
async def test_a_bad_policy_at_the_start_ends_with_1_and_says_where(tmp_path: Path) -> None:
    """File and path of the fault, and no traceback."""
    path = write_policy(tmp_path, policy(algorithm="Coin"))
    process = GivewayProcess(
        *("serve", "--upstream", "http://127.0.0.1:1", "--policy", str(path), "--port", "0"),
        *("--admin-port", "0"),
        logs=tmp_path,
        name="bad",
    )
    async with process:
        process.spawn()
        assert await process.exited() == 1
        assert "policy.yaml" in process.stderr
        assert "algorithm" in process.stderr
        assert "Traceback" not in process.stderr


@pytest.mark.slow
async def test_the_access_log_has_a_line_for_each_request(tmp_path: Path) -> None:
    """G14, G03: path, status, outcome, class; no key and no prompt."""
    secret = {"Authorization": "Bearer sk-canary-123456", "X-Api-Key": "canary"}
    async with (
        ScriptedEngine(chatting()) as engine,
        Proxy(engine.url, "--access-log", logs=tmp_path) as proxy,
    ):
        body = chat_body(text="a canary in the prompt")
        await ask(proxy.url, f"{CHAT}?key=canary", body, headers=secret)
        await ask(proxy.url, "/nope", body, headers=secret)
        lines = await until(lambda: _request_lines(proxy.stderr), what="two lines are written")
        assert [line["outcome"] for line in lines] == ["completed", "not_found"]
        assert lines[0]["path"] == CHAT
        assert lines[0]["status"] == 200
        assert "canary" not in proxy.stderr


def _request_lines(text: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in text.splitlines() if '"event":"request"' in line]
    return lines if len(lines) == 2 else []
