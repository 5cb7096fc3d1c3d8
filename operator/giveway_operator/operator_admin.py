"""What can be asked of a running operator?

`/livez`: is it worth while to start it anew? Only if the event loop stands, or passes end no more
although it leads. That the API server does not answer is no reason: a restart mends nothing then.
`/readyz`: does it do its work, or stand by for the one that does? `/metrics` for Prometheus.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from giveway_operator.operating import Operator

STUCK_S: Final = 600.0
"""Since the last end of a pass, good or not: the longest time-outs of one together are less."""
LAG_INTERVAL_S: Final = 1.0
LARGEST_LAG_S: Final = 30.0
"""A loop that comes to nothing for this long is in a call that does not end."""
STOP_S: Final = 2.0
CLIENT_TIMEOUT_S: Final = 10


class LoopLag:
    """How late the event loop is."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.largest_s = 0.0
        """Of the last measurement."""

    async def run(self) -> None:
        while True:
            due_s = self._clock() + LAG_INTERVAL_S
            await asyncio.sleep(LAG_INTERVAL_S)
            self.largest_s = max(0.0, self._clock() - due_s)


class OperatorAdmin:
    """The admin port."""

    def __init__(
        self,
        operator: Operator,
        *,
        clock: Callable[[], float],
        collectors: tuple[Collector, ...] = (),
        missing_rights: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._operator = operator
        self._clock = clock
        self._missing_rights = missing_rights
        self._lag = LoopLag(clock)
        self._lagging: asyncio.Task[None] | None = None
        self._registry = CollectorRegistry()
        self._registry.register(_OperatorCollector(operator, self._lag))
        for each in collectors:
            self._registry.register(each)
        application = web.Application(client_max_size=4096)
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=STOP_S, keepalive_timeout=75
        )

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (0: the system chooses). Raises `OSError`."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self._lagging = asyncio.create_task(self._lag.run(), name="loop-lag")
        bound: int = self._runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        if self._lagging is not None:
            self._lagging.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._lagging
        await self._runner.cleanup()

    def alive(self) -> list[str]:
        """Why it is not. Empty: it is."""
        reasons = []
        if self._lag.largest_s > LARGEST_LAG_S:
            reasons.append(f"the event loop was {self._lag.largest_s:.0f} s late")
        operator = self._operator
        if operator.leading_s is not None:
            ended_s = max(operator.statistics.last_end_s or 0.0, operator.leading_s)
            if self._clock() - ended_s > STUCK_S:
                reasons.append(f"no pass has ended for {self._clock() - ended_s:.0f} s")
        return reasons

    def ready(self) -> list[str]:
        """Why it is not. Empty: it is."""
        reasons = [f"a right is missing: {each}" for each in self._missing_rights()]
        operator = self._operator
        if operator.leadership.leading:
            if operator.statistics.last_error:
                reasons.append(f"the last pass failed: {operator.statistics.last_error}")
            elif operator.result is None:
                reasons.append("the first pass has not ended yet")
        elif fault := operator.leadership.standby_fault():
            reasons.append(fault)
        return reasons

    async def _livez(self, _: web.Request) -> web.Response:
        return _answer(self.alive())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self.ready(), leading=self._operator.leadership.leading)

    async def _metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(reasons: list[str], **more: object) -> web.Response:
    body = {"ok": not reasons, "reasons": reasons, **more}
    return web.Response(
        status=503 if reasons else 200, text=json.dumps(body), content_type="application/json"
    )


class _OperatorCollector(Collector):
    def __init__(self, operator: Operator, lag: LoopLag) -> None:
        self._operator = operator
        self._lag = lag

    def collect(self) -> Iterator[Metric]:
        statistics = self._operator.statistics
        lease = self._operator.leadership.statistics()
        for name, text, value in (
            ("giveway_leader", "1 if this operator leads.", float(lease.leading)),
            ("giveway_operator_epoch", "Epoch in which it leads or last led.", lease.epoch),
            (
                "giveway_operator_pass_seconds",
                "How long the last good pass took.",
                statistics.last_pass_duration_s,
            ),
            (
                "giveway_operator_last_pass_timestamp_seconds",
                "When the last good pass ended, since 1970; 0: none did.",
                statistics.last_pass_time,
            ),
            ("giveway_operator_loop_lag_seconds", "How late the loop is.", self._lag.largest_s),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        passes = CounterMetricFamily(
            "giveway_operator_passes", "Passes by how they ended.", labels=("outcome",)
        )
        passes.add_metric(("good",), statistics.passes)
        passes.add_metric(("failed",), statistics.failed_passes)
        yield passes
        for name, text, count in (
            ("giveway_operator_writes", "Writes to the API server.", statistics.writes),
            (
                "giveway_operator_conflicts",
                "Writes that somebody else's had overtaken.",
                statistics.conflicts,
            ),
        ):
            yield CounterMetricFamily(name, text, value=count)
        left_out = GaugeMetricFamily(
            "giveway_operator_left_out_resources",
            "Resources that do not make sense, by kind of fault.",
            labels=("reason",),
        )
        result = self._operator.result
        if result is not None:
            kinds: dict[str, set[object]] = {}
            for fault in result.faults:
                kinds.setdefault(fault.kind.value, set()).add(fault.resource)
            for kind, resources in sorted(kinds.items()):
                left_out.add_metric((kind,), len(resources))
        yield left_out
