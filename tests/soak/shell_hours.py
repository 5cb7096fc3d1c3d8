"""Some hours of a whole proxy's life: real sockets, an invented clock.

Clients ask, stream, leave in the middle, stay connected, are slow; the engine breaks connections
and is away; policies change; the machine stands still for an hour. Each hour ends with a quiet
stretch in which every idle connection comes to its end.
"""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from giveway_admission.local_policies import LocalPolicies
from giveway_admission.policy_sources import NOTHING
from giveway_admission.runtime_policies import RuntimePolicy
from giveway_admission.serving import Server

from tests.soak.invented_loop import InventedClock
from tests.support.policies import Spec, policy, service_class, write_policy
from tests.support.raw_client import ClosedError, RawClient, chat_body, request
from tests.support.scripted_engine import Exchange, ScriptedEngine, chatting
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
HOUR_S = 3600.0
ASKING_S = 1200.0
"""Clients come in this part of the hour; the rest is longer than any connection may be idle."""
STANDS_S = 3000.0


@dataclass(slots=True)
class Hours:
    """Drives one proxy. `statuses` counts what the clients saw."""

    server: Server
    engine: ScriptedEngine
    clock: InventedClock
    folder: Path
    tenants: int
    """That come in turn, one with each client."""
    statuses: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    _generator: random.Random = field(default_factory=lambda: random.Random(7))
    _clients: int = 0

    async def hour(self, *, clients: int) -> None:
        """One hour with so many clients, and what comes late because the machine stood still."""
        begin_s = self.clock.now_s
        self._change_policy()
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._client(self._generator.uniform(0.0, ASKING_S)))
            group.create_task(self._disturb())
        await asyncio.sleep(max(0.0, begin_s + HOUR_S - self.clock.now_s))
        self._forget_what_the_engine_saw()

    async def _client(self, after_s: float) -> None:
        """One client of one tenant; it may ask twice on its connection."""
        await asyncio.sleep(after_s)
        self._clients += 1
        number, lot = self._clients, self._generator.random()
        headers = {
            "X-Giveway-Tenant": f"tenant-{number % self.tenants}",
            "X-Giveway-Class": self._generator.choice(("realtime", "standard", "batch")),
        }
        body = chat_body(stream=lot < 0.6, text="word " * self._generator.randrange(1, 400))
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            async with await RawClient.open(self.server.data_url) as client:
                for _ in range(2):
                    await client.send(request("POST", CHAT, body=body, headers=headers))
                    if lot > 0.9:
                        await client.pause(self._generator.uniform(0.0, 3.0))
                        client.reset()
                        self.statuses["left"] += 1
                        return
                    end = await _status(client)
                    self.statuses[end] += 1
                    if not end.isdecimal():
                        return

    async def _disturb(self) -> None:
        """The engine goes and comes, and the machine stands still in the middle of it all."""
        await asyncio.sleep(ASKING_S / 3)
        await self.engine.stop()
        await asyncio.sleep(20.0)
        await self.engine.start()
        await asyncio.sleep(ASKING_S / 3)
        self.clock.sleep_on(STANDS_S)

    def _change_policy(self) -> None:
        self.changes += 1
        path = write_policy(self.folder, _policy(self.changes))
        document = LocalPolicies(path, policy_name=None).read(NOTHING).document
        assert document is not None
        self.server.proxy.configure(RuntimePolicy.build(document))

    def _forget_what_the_engine_saw(self) -> None:
        """Its log is the test's, and grows."""
        for connection in self.engine.connections:
            connection.requests.clear()
        self.engine.connections[:] = [each for each in self.engine.connections if each.is_open]


async def settle(hours: Hours) -> None:
    """Wait until the last connection is gone; nothing may be left then."""
    proxy = hours.server.proxy
    await until(lambda: not proxy.connections, what="idle connections have ended")
    now = hours.server.statistics()
    assert (proxy.busy, now.running, now.queued, len(proxy.ids)) == (0, 0, 0, 0)


def slow_engine() -> "ScriptedEngine":
    """It needs some seconds for an answer, and drops one of twenty connections half-way."""
    generator = random.Random(3)
    whole = chatting(("some", " words", " come"))

    async def script(exchange: Exchange) -> None:
        if exchange.request.method == "POST":
            await exchange.pause(generator.uniform(0.1, 8.0))
            if generator.random() < 0.05:
                exchange.reset()
                return
        await whole(exchange)

    return ScriptedEngine(script)


async def _status(client: RawClient) -> str:
    """The answer's status, or how it broke. After twenty seconds of silence a client gives up."""
    try:
        return str((await client.answer()).status)
    except ClosedError:
        return "cut"
    except TimeoutError:
        return "gave up"


def _policy(change: int) -> Spec:
    """Limits, seats and algorithm change; the classes' names stay, but for one."""
    classes = [
        service_class("realtime", weight=70, time_to_live_s=15, first_token_ms=300),
        service_class(
            "standard", weight=25, time_to_live_s=30, limits={"requestsPerSecond": 1 + change % 2}
        ),
        service_class("batch", kind="Batch", weight=5, over_limit="Queue", time_to_live_s=120),
    ]
    if change % 3 == 0:
        classes.insert(1, service_class("extra", weight=10))
    algorithms = ("SLOAware", "InteractiveFirst", "WeightedRandom", "DynamicAging")
    return policy(
        classes=classes,
        seats=3 + change % 3,
        batch_maximum=2,
        algorithm=algorithms[change % len(algorithms)],
        queue={"keepAliveSeconds": 5 * (change % 2)},
    )
