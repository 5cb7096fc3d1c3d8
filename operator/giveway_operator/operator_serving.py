"""How is an operator started, and ended?"""

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from giveway_operator.burning import Budgets
from giveway_operator.considering import Considering
from giveway_operator.kube_client import ApiServer, KubeClient, KubeError, load_configuration
from giveway_operator.leases import Leadership, LeaseSettings
from giveway_operator.looking import Looking
from giveway_operator.loop_metrics import LoopCollector
from giveway_operator.observing import PrometheusObserver
from giveway_operator.operating import (
    Operator,
    minutes_since_1970,
    utc_now,
    utc_now_exactly,
)
from giveway_operator.operator_admin import OperatorAdmin
from giveway_operator.operator_settings import OperatorSettings
from giveway_operator.passes import Passes
from giveway_operator.permissions import Right, missing_rights, needed_rights
from giveway_operator.querying import PrometheusClient
from giveway_operator.slo_loop import SLOLoop
from giveway_operator.waking import KopfWatch

RIGHTS_RETRY_S = 10.0
"""Asked again only while something is wrong."""
_log = logging.getLogger(__name__)


class PortTakenError(OSError):
    """An address can't be listened on; the message says which and what to do."""


@dataclass(slots=True)
class _Rights:
    """Which are missing, as far as it was asked."""

    missing: tuple[str, ...] = field(default=())

    async def check(
        self, kube: KubeClient, settings: OperatorSettings, in_trouble: Callable[[], bool]
    ) -> None:
        """At the start, and whenever something fails. Each missing right is told once."""
        rights = list(needed_rights(settings.namespaces, lease_settings(settings)))
        is_known = False
        while True:
            if not is_known or self.missing or in_trouble():
                is_known = await self._ask(kube, rights)
            await asyncio.sleep(RIGHTS_RETRY_S)

    async def _ask(self, kube: KubeClient, rights: Sequence[Right]) -> bool:
        """Whether there was an answer."""
        try:
            missing = tuple(str(each) for each in await missing_rights(kube, rights))
        except KubeError as error:
            _log.warning("it cannot be asked which rights there are: %s", error)
            return False
        for each in missing:
            if each not in self.missing:
                _log.error("a right is missing: %s", each)
        if self.missing and not missing:
            _log.info("no right is missing any more")
        self.missing = missing
        return True


def lease_settings(settings: OperatorSettings) -> LeaseSettings:
    duration_s = round(settings.lease_duration_s)
    return LeaseSettings(
        namespace=settings.lease_namespace,
        name=settings.lease_name,
        duration_s=duration_s,
        renew_s=duration_s * 0.4,
        retry_s=min(3.0, duration_s * 0.15),
        trust_s=duration_s * 0.75,
    )


async def operate_until_signal(settings: OperatorSettings) -> int:
    """Run until SIGTERM or SIGINT; the exit code."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    kube = ApiServer(load_configuration(settings.kubeconfig))
    client = PrometheusClient(settings.prometheus) if settings.prometheus else None
    try:
        await _operate(settings, kube, client, stopped)
    finally:
        kube.close()
        if client is not None:
            client.close()
    return 0


async def _operate(
    settings: OperatorSettings,
    kube: ApiServer,
    client: PrometheusClient | None,
    stopped: asyncio.Event,
) -> None:
    operator, slo_loop = _assemble(settings, kube, client)
    rights = _Rights()
    collectors = (
        (LoopCollector(slo_loop, client),) if slo_loop is not None and client is not None else ()
    )
    admin = OperatorAdmin(
        operator,
        clock=time.monotonic,
        collectors=collectors,
        missing_rights=lambda: rights.missing,
    )
    watch = KopfWatch(
        lambda: load_configuration(settings.kubeconfig),
        namespaces=settings.namespaces,
        wake=operator.wake,
    )
    try:
        port = await admin.start(settings.admin_host, settings.admin_port)
    except OSError as error:
        raise PortTakenError(
            f"can't listen on {settings.admin_host}:{settings.admin_port}: "
            f"{error.strerror or error}. Choose another with --admin-host and --admin-port."
        ) from None
    tasks: list[asyncio.Task[object]] = []
    try:
        _say(f"admin http://127.0.0.1:{port}\n")
        watch.start()
        tasks = [
            asyncio.ensure_future(operator.run()),
            asyncio.ensure_future(stopped.wait()),
        ]
        checking = asyncio.ensure_future(rights.check(kube, settings, operator.in_trouble))
        tasks.append(checking)
        await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await watch.stop()
        await admin.stop()
    for each in found:
        if isinstance(each, Exception):
            raise each


def _assemble(
    settings: OperatorSettings, kube: KubeClient, client: PrometheusClient | None
) -> tuple[Operator, SLOLoop | None]:
    slo_loop = None
    if client is not None:
        observer = PrometheusObserver(client, matchers=settings.prometheus_matchers)
        slo_loop = SLOLoop(
            observer,
            budgets=Budgets(observer),
            acknowledge_timeout_s=settings.acknowledge_timeout_s,
        )
    clock = time.monotonic
    considering = Considering(slo_loop, clock=clock, now=utc_now)
    looking = Looking(
        kube,
        namespaces=settings.namespaces,
        secrets_max_age_s=settings.resync_s / 2,
        clock=clock,
    )
    passes = Passes(kube, looking, now=utc_now, reports_tenants=not settings.namespaces)
    leadership = Leadership(
        kube,
        lease_settings(settings),
        clock=clock,
        now=utc_now_exactly,
        minutes=minutes_since_1970,
    )
    operator = Operator(
        passes,
        considering,
        leadership,
        resync_s=settings.resync_s,
        shortest_pause_s=settings.shortest_pause_s,
        longest_backoff_s=settings.longest_backoff_s,
        clock=clock,
    )
    considering.wake = operator.wake
    return operator, slo_loop


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        sys.stdout.write(line)
        sys.stdout.flush()
