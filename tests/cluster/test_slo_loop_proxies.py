"""The whole loop on real proxies and a real Prometheus; publishing is a file in a mounted folder.

Two proxies before emulated engines share by weight. Batch takes all there is; the standard class
needs more than its tenth and misses its objective until the loop has raised it.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from giveway_operator.observing import PrometheusObserver
from giveway_operator.querying import PrometheusClient, PrometheusSettings
from giveway_operator.slo_loop import Consideration, SLOLoop
from giveway_operator.statuses import ConditionType
from giveway_operator.weighing import DecisionReason
from giveway_policy.documents import PolicyDocument, PolicyName, document_json, make_document
from giveway_policy.resources import SLOPolicySpec

from tests.cluster.shared_policies import shared_policy
from tests.support.loads import Load
from tests.support.processes import Emulator, Proxy
from tests.support.prometheus import Prometheus, binaries
from tests.support.scraping import scrape

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

POLICY = PolicyName(namespace="llm", name="chat")
INTERVAL_S = 5.0


@dataclass(slots=True)
class Fleet:
    """Two proxies, their Prometheus, the loop, and what it decided so far."""

    spec: SLOPolicySpec
    prometheus: Prometheus
    proxies: list[Proxy]
    folder: Path
    loop: SLOLoop
    document: PolicyDocument
    history: list[Consideration]

    def publish(self, weights: dict[str, float]) -> None:
        self.document = make_document(
            POLICY, self.spec, epoch=1, generation=self.document.generation + 1, weights=weights
        )
        write(self.folder, self.document)

    async def turn(self) -> Consideration:
        considered = await self.loop.consider(
            POLICY, self.spec, self.document, len(self.proxies), now_s=time.monotonic()
        )
        self.history.append(considered)
        if self.document.weights != considered.weights:
            self.publish(dict(considered.weights))
        return considered

    async def turns_until(
        self, condition: Callable[[Consideration], bool], *, what: str, within_s: float = 90.0
    ) -> Consideration:
        """Considers once each interval, as the operator does."""
        deadline_s = time.monotonic() + within_s
        while True:
            started_s = time.monotonic()
            considered = await self.turn()
            if condition(considered):
                return considered
            told = [each.inputs or each.findings[-1].message for each in self.history[-10:]]
            assert started_s < deadline_s, f"{what}: not within {within_s} s; {told}"
            await asyncio.sleep(max(0.0, started_s + INTERVAL_S - time.monotonic()))


def write(folder: Path, document: PolicyDocument) -> None:
    beside = folder / "chat.tmp"
    beside.write_text(document_json(document))
    beside.rename(folder / "chat.json")


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    found = binaries()
    assert found, "there is no Prometheus: set KUBEBUILDER_ASSETS, or install it"
    spec = shared_policy()
    folder = tmp_path / "mounted"
    folder.mkdir()
    data = tmp_path / "prometheus"
    data.mkdir()
    document = make_document(POLICY, spec, epoch=1, generation=1)
    write(folder, document)
    async with AsyncExitStack() as stack:
        prometheus = stack.enter_context(Prometheus(found[max(found)], data, scrape_interval_s=1.0))
        proxies = []
        for rank in range(2):
            engine = Emulator("--max-num-seqs", "8", logs=tmp_path, name=f"emulate-{rank}")
            await stack.enter_async_context(engine)
            proxy = Proxy(
                engine.url,
                *("--policy-document", str(folder)),
                logs=tmp_path,
                name=f"serve-{rank}",
            )
            proxies.append(await stack.enter_async_context(proxy))
        prometheus.scrape(*(each.admin_url.removeprefix("http://") for each in proxies))
        client = PrometheusClient(PrometheusSettings(url=prometheus.url))
        stack.callback(client.close)
        loop = SLOLoop(PrometheusObserver(client))
        yield Fleet(spec, prometheus, proxies, folder, loop, document, [])


def standard(considered: Consideration) -> float:
    return float(next(each for each in considered.classes if each.name == "standard").weight)


def status_of(considered: Consideration, kind: ConditionType) -> str:
    return next(each.status for each in considered.findings if each.type is kind)


async def test_a_missed_objective_is_mended_and_the_weights_return_when_the_load_is_gone(
    fleet: Fleet,
) -> None:
    """H8, H9: missed, raised by steps that arrive before the next one, recovered, back at base."""
    async with Load([each.url for each in fleet.proxies]) as load:
        load.keeping("batch", at_once=16)
        load.arriving("standard", per_s=8.0)
        await fleet.turns_until(
            lambda each: status_of(each, ConditionType.SLO_MET) == "False", what="it is missed"
        )
        recovered = await fleet.turns_until(
            lambda each: status_of(each, ConditionType.SLO_MET) == "True",
            what="it is met again",
            within_s=150.0,
        )
        assert standard(recovered) > 10
        for proxy in fleet.proxies:
            weight = (await scrape(proxy.admin_url)).value(
                "giveway_class_weight", **{"class": "standard"}
            )
            assert weight == pytest.approx(standard(recovered), abs=0.001)
        await load.end()
    back = await fleet.turns_until(
        lambda each: each.weights == {} and each.decision is not None, what="weights are at base"
    )
    assert back.decision is not None
    seen = [10.0, *(standard(each) for each in fleet.history)]
    for before, after in itertools.pairwise(seen):
        assert abs(after - before) <= 0.5 * before + 0.01
    changes = [each for each in fleet.history if each.decision and each.decision.changed]
    assert {each.decision.reason for each in changes if each.decision} <= {
        DecisionReason.RAISING,
        DecisionReason.RETURNING,
    }
    assert changes[0].events[0].reason == "WeightsChanged"
    rising = [each for each in changes if each.decision and each.decision.reason == "Raising"]
    assert [standard(each) for each in rising] == sorted(standard(each) for each in rising)
