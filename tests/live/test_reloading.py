"""Does a change of the policy under traffic lose, break or double anything?"""

import asyncio
import json
import shutil
import time
from pathlib import Path

import pytest
import yaml
from giveway_policy.documents import PolicyName, document_json, make_document
from giveway_policy.resources import SLOPolicySpec

from tests.support.policies import Spec, policy, service_class, write_policy
from tests.support.processes import Proxy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import RawClient, ask, chat_body, request
from tests.support.scraping import outcomes, queue_has, scrape
from tests.support.scripted_engine import Exchange, ScriptedEngine, chatting, probes_first
from tests.support.vllm_answers import chat_chunk, chat_events, chunk, stream_head
from tests.support.waiting import until

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
RELOAD_WITHIN_S = 2.0
SLACK_S = 1.0
"""What a loaded machine may add to the promise."""


class MountedFolder:
    """A folder laid out and swapped as the kubelet does with a mounted ConfigMap."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._count = 0
        root.mkdir()
        (root / "policy.yaml").symlink_to("..data/policy.yaml")

    def swap(self, document: Spec) -> None:
        """Write a new version beside the old one, turn the link, remove the old one at once."""
        self._count += 1
        fresh = self.root / f"..version_{self._count}"
        fresh.mkdir()
        (fresh / "policy.yaml").write_text(yaml.safe_dump(document))
        beside = self.root / "..data_tmp"
        beside.symlink_to(fresh.name)
        data = self.root / "..data"
        old = data.resolve() if data.exists() else None
        beside.replace(data)
        if old is not None:
            shutil.rmtree(old)


async def _seats(proxy: Proxy) -> float:
    return (await scrape(proxy.admin_url)).value("giveway_seats")


async def _has_seats(proxy: Proxy, seats: int) -> bool:
    return await _seats(proxy) == seats


async def test_d03_swapped_links_are_seen_every_time(
    start_proxy: ProxyStarter, tmp_path: Path
) -> None:
    """D03: 20 swaps of a mounted ConfigMap, two within 100 ms: the last content holds each time."""
    mounted = MountedFolder(tmp_path / "mounted")
    mounted.swap(policy(seats=1))
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url, policy_path=mounted.root)
        assert await _seats(proxy) == 1
        for seats in range(2, 20):
            if seats == 10:
                mounted.swap(policy(seats=100))
            mounted.swap(policy(seats=seats))
            wanted = seats
            await until(
                lambda: _has_seats(proxy, wanted),  # noqa: B023 - awaited before the next turn
                what=f"{seats} seats",
                within_s=RELOAD_WITHIN_S + SLACK_S,
            )
        samples = await scrape(proxy.admin_url)
        assert samples.total("giveway_policy_rejected_total") == 0


async def test_d14_ten_reloads_under_traffic_break_nothing(start_proxy: ProxyStarter) -> None:
    """D14: 50 streams run and 50 wait while the policy changes ten times: all 100 are whole."""
    gate = asyncio.Event()

    async def slowly(exchange: Exchange) -> None:
        await exchange.send(stream_head())
        await exchange.send(chunk(chat_chunk(role="assistant", text="")))
        while not gate.is_set():
            await exchange.send(chunk(chat_chunk(text="x")))
            await exchange.pause(0.05)
        await exchange.send_events(chat_events(["y"])[1:])
        await exchange.end()

    async with ScriptedEngine(probes_first(slowly)) as engine:
        path = write_policy(start_proxy.folder, policy(seats=50), name="changing.yaml")
        proxy = await start_proxy(engine.url, policy_path=path)
        tasks = [asyncio.create_task(_whole_stream(proxy.url)) for _ in range(100)]
        await until(lambda: queue_has(proxy.admin_url, 50), what="50 wait")
        await until(lambda: engine.busy == 50, what="50 run")
        for turn in range(10):
            classes = [
                service_class("realtime", weight=70 - turn, time_to_live_s=60 + turn),
                service_class("standard", weight=25 + turn, time_to_live_s=60),
            ]
            write_policy(path.parent, policy(seats=50, classes=classes), name=path.name)
            await until(
                lambda: _generation_is_not(proxy, turn),  # noqa: B023 - awaited at once
                what=f"change {turn} is in force",
                within_s=RELOAD_WITHIN_S + SLACK_S,
            )
            assert engine.busy == 50
        gate.set()
        assert set(await asyncio.gather(*tasks)) == {True}
        assert len(engine.work) == 100
        assert engine.most_busy == 50
        assert await outcomes(proxy.admin_url) == {"completed": 100}


async def test_weights_that_the_operator_decides_change_under_traffic_and_break_nothing(
    start_proxy: ProxyStarter, tmp_path: Path
) -> None:
    """H8 at the proxy: a new document with other weights alone; all streams are whole."""
    gate = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await exchange.send(stream_head())
        await exchange.send(chunk(chat_chunk(role="assistant", text="")))
        await gate.wait()
        await exchange.send_events(chat_events(["y"])[1:])
        await exchange.end()

    mounted = tmp_path / "mounted"
    mounted.mkdir()
    spec = SLOPolicySpec.model_validate_json(json.dumps(policy(seats=5)["spec"]))

    def publish(generation: int, standard: float) -> None:
        document = make_document(
            PolicyName(namespace="llm", name="chat"),
            spec,
            epoch=1,
            generation=generation,
            weights={"standard": standard},
        )
        (mounted / "chat.json").write_text(document_json(document))

    async def weight() -> float:
        samples = await scrape(proxy.admin_url)
        return samples.value("giveway_class_weight", **{"class": "standard"})

    publish(1, 25.0)
    async with ScriptedEngine(probes_first(held)) as engine:
        proxy = await start_proxy(engine.url, "--policy-document", str(mounted))
        tasks = [asyncio.create_task(_whole_stream(proxy.url)) for _ in range(10)]
        await until(lambda: queue_has(proxy.admin_url, 5), what="5 wait")
        for generation, standard in enumerate((30.0, 36.0, 25.0), start=2):
            publish(generation, standard)

            async def arrived(wanted: float = standard) -> bool:
                return await weight() == wanted

            await until(arrived, what=f"weight {standard}")
            assert engine.busy == 5
        gate.set()
        assert set(await asyncio.gather(*tasks)) == {True}
        assert await outcomes(proxy.admin_url) == {"completed": 10}


async def _generation_is_not(proxy: Proxy, turn: int) -> bool:
    """The weight of the first class is the one written in this turn."""
    samples = await scrape(proxy.admin_url)
    wanted = (70 - turn) / 95
    given = samples.value("giveway_class_weight", **{"class": "realtime"})
    return abs(given - wanted) < 1e-6 or given == 70 - turn


async def _whole_stream(url: str) -> bool:
    async with await RawClient.open(url) as client:
        await client.send(request("POST", CHAT, body=chat_body(stream=True)))
        head = await client.read_head()
        body = await client.read_body(head)
    return head.status == 200 and body.endswith(b"data: [DONE]\n\n")


async def test_d01_after_a_broken_edit_the_old_text_is_a_change_too(
    start_proxy: ProxyStarter,
) -> None:
    """D01: A, garbage, A again, B: the fault is told and is gone with A; then B holds."""
    good = policy(seats=7)
    async with ScriptedEngine(chatting()) as engine:
        path = write_policy(start_proxy.folder, good, name="changing.yaml")
        proxy = await start_proxy(engine.url, policy_path=path)
        proxy.expected_errors = ("policy",)
        assert await _seats(proxy) == 7
        path.write_text("classes: [unclosed")
        await until(lambda: _has_faults(proxy), what="the fault is told", within_s=4)
        assert (await scrape(proxy.admin_url)).total("giveway_policy_rejected_total") > 0
        assert await _seats(proxy) == 7
        assert (await ask(proxy.url, CHAT, chat_body())).status == 200
        write_policy(path.parent, good, name=path.name)
        await until(lambda: _has_no_faults(proxy), what="the fault is gone", within_s=4)
        write_policy(path.parent, policy(seats=9), name=path.name)
        started_s = time.monotonic()
        await until(lambda: _has_seats(proxy, 9), what="B holds", within_s=4)
        assert time.monotonic() - started_s < RELOAD_WITHIN_S + SLACK_S


async def _has_faults(proxy: Proxy) -> bool:
    policy_now = (await ask(proxy.admin_url, "/status")).json()["policy"]
    assert isinstance(policy_now, dict)
    return bool(policy_now["faults"])


async def _has_no_faults(proxy: Proxy) -> bool:
    return not await _has_faults(proxy)


@pytest.mark.parametrize("reloads", [5, pytest.param(20, marks=pytest.mark.nightly)])
async def test_d05_a_reload_refills_no_bucket(start_proxy: ProxyStarter, reloads: int) -> None:
    """D05: a drained bucket stays drained through reloads that change another class."""
    limits = {"requestsPerSecond": 1, "requestBurst": 30}

    def version(turn: int) -> Spec:
        classes = [
            service_class("realtime", limits=limits),
            service_class("batch", kind="Batch", weight=1 + turn),
        ]
        return policy(seats=64, classes=classes)

    async with ScriptedEngine(chatting()) as engine:
        path = write_policy(start_proxy.folder, version(0), name="changing.yaml")
        proxy = await start_proxy(engine.url, policy_path=path)
        started_s = time.monotonic()
        passed = 0
        for turn in range(1, reloads + 1):
            while (await ask(proxy.url, CHAT, chat_body())).status == 200:
                passed += 1
            write_policy(path.parent, version(turn), name=path.name)
            await until(
                lambda: _weights_differ(proxy, 10 / (11 + turn)),  # noqa: B023 - awaited at once
                what="the change is in force",
                within_s=4,
            )
        elapsed_s = time.monotonic() - started_s
        assert 30 <= passed <= 30 + elapsed_s + 1


async def _weights_differ(proxy: Proxy, share: float) -> bool:
    samples = await scrape(proxy.admin_url)
    given = samples.value("giveway_class_weight", **{"class": "batch"})
    return abs(given - (1 - share)) < 1e-6 or given == round(10 / share) - 10
