"""When policies are considered, beside passes that wait for nothing."""

import asyncio
from collections.abc import Mapping

from giveway_operator.considering import Considering
from giveway_operator.passes import PassResult
from giveway_operator.reporting import LoopEvent
from giveway_operator.slo_loop import Consideration
from giveway_operator.statuses import PodsStatus
from giveway_policy.documents import PolicyDocument, PolicyName
from giveway_policy.resources import SLOPolicySpec

from tests.operator.cluster_worlds import World

CHAT = PolicyName(namespace="llm", name="chat")
OTHER = PolicyName(namespace="other", name="chat")


class ScriptedLoop:
    """Answers when it may; `hangs` are policies whose Prometheus never does."""

    def __init__(self) -> None:
        self.considered: list[PolicyName] = []
        self.forgotten: list[PolicyName] = []
        self.cancelled: list[PolicyName] = []
        self.hangs: set[PolicyName] = set()
        self.breaks: set[PolicyName] = set()

    def weights(
        self, policy: PolicyName, spec: SLOPolicySpec, published: PolicyDocument | None
    ) -> Mapping[str, float]:
        return {}

    def forget(self, policy: PolicyName) -> None:
        self.forgotten.append(policy)

    async def consider(
        self,
        policy: PolicyName,
        spec: SLOPolicySpec,
        published: PolicyDocument | None,
        pods: int,
        *,
        now_s: float,
    ) -> Consideration:
        self.considered.append(policy)
        if policy in self.hangs:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(policy)
                raise
        if policy in self.breaks:
            raise RuntimeError("broken")
        return Consideration(
            weights={},
            classes=(),
            findings=(),
            pods=PodsStatus(ready=pods),
            decision=None,
            inputs="",
            events=(LoopEvent(type="Normal", reason="Said", message=str(policy)),),
        )


class Clock:
    def __init__(self) -> None:
        self.world = World()
        self.loop = ScriptedLoop()
        self.woken = 0
        self.considering = Considering(
            self.loop, clock=lambda: self.world.clock_s, now=lambda: self.world.now
        )
        self.considering.wake = self._wake

    def _wake(self) -> None:
        self.woken += 1

    async def turn(self, *, later_s: float = 0.0) -> PassResult:
        """A pass, and all that can come of it at once."""
        self.world.clock_s += later_s
        result = await self.world.run()
        self.considering.start_due(result)
        for _ in range(5):
            await asyncio.sleep(0)
        return result


async def test_policy_is_considered_once_in_its_interval_and_wakes_a_pass() -> None:
    clock = Clock()
    clock.world.policy()
    await clock.turn()
    assert clock.loop.considered == [CHAT]
    assert clock.woken == 1
    assert list(clock.considering.take_events()) == [CHAT]
    assert clock.considering.take_events() == {}
    await clock.turn(later_s=29.9)
    assert clock.loop.considered == [CHAT]
    assert clock.considering.next_due_s() == 1030.0
    await clock.turn(later_s=0.1)
    assert clock.loop.considered == [CHAT, CHAT]


async def test_e19_prometheus_that_hangs_holds_up_no_other_policy() -> None:
    """E19: others keep their interval, and the one that hangs is not asked twice at once."""
    clock = Clock()
    clock.world.policy()
    clock.world.policy("chat", "other")
    clock.loop.hangs = {CHAT}
    for _ in range(4):
        await clock.turn(later_s=30.0)
    assert clock.loop.considered.count(OTHER) == 4
    assert clock.loop.considered.count(CHAT) == 1
    await clock.considering.stop()
    assert clock.loop.cancelled == [CHAT]


async def test_e09_policy_that_is_deleted_while_prometheus_is_asked_leaves_nothing_behind() -> None:
    """E09: the question is given up, and nothing is written of it afterwards."""
    clock = Clock()
    clock.world.policy()
    clock.loop.hangs = {CHAT}
    await clock.turn()
    clock.world.kube.objects = {
        key: each for key, each in clock.world.kube.objects.items() if key[0] != "slopolicies"
    }
    await clock.turn()
    assert clock.loop.cancelled == [CHAT]
    assert clock.loop.forgotten == [CHAT]
    assert CHAT not in clock.considering.reports
    clock.world.kube.take_writes()
    await clock.turn(later_s=60.0)
    assert clock.world.kube.take_writes() == []


async def test_consideration_that_breaks_is_tried_again_in_the_next_interval() -> None:
    clock = Clock()
    clock.world.policy()
    clock.loop.breaks = {CHAT}
    await clock.turn()
    await clock.turn(later_s=30.0)
    assert clock.loop.considered == [CHAT, CHAT]


async def test_events_that_could_not_be_told_come_once_more_before_later_ones() -> None:
    clock = Clock()
    clock.world.policy()
    await clock.turn()
    told = clock.considering.take_events()
    await clock.turn(later_s=30.0)
    clock.considering.put_back(told)
    assert len(clock.considering.take_events()[CHAT]) == 2


async def test_without_a_loop_weights_are_the_policys_own() -> None:
    world = World()
    world.policy()
    world.weights = lambda *_: {"realtime": 90.0}
    await world.run()
    considering = Considering(None, clock=lambda: 0.0, now=lambda: world.now)
    world.weights = considering.weights
    considering.start_due(await world.run())
    assert world.document().weights == {}
    assert considering.next_due_s() is None
