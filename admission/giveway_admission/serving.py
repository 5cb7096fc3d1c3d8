"""How do the parts become a running proxy?

`Server` starts what belongs together (policy, data port, admin port, probe of the engine) and ends
it in the opposite order. It is also what the admin port asks about the whole.
"""

import asyncio
import contextlib
import gc
import importlib.metadata
import logging
import os
import signal
import sys
from types import TracebackType
from typing import Self

from giveway_policy.defaults import default_document
from giveway_policy.documents import PolicyDocument
from giveway_policy.faults import Fault
from giveway_scheduler import Statistics

from giveway_admission.admin import make_admin_application
from giveway_admission.admin_port import AdminPort
from giveway_admission.api_watching import ApiSettings, ApiWatch
from giveway_admission.client_connections import ClientConnection
from giveway_admission.draining import Drain
from giveway_admission.engine_probing import explain_os_error
from giveway_admission.engine_watching import EngineReading, EngineWatcher
from giveway_admission.file_limits import raise_file_limit
from giveway_admission.local_policies import LocalPolicies
from giveway_admission.logs import log_event
from giveway_admission.metrics import Metrics
from giveway_admission.mounted_documents import MountedDocuments
from giveway_admission.policy_watching import PolicyWatch
from giveway_admission.proxying import Proxy
from giveway_admission.recent_decisions import RecentDecisions
from giveway_admission.runtime_policies import RuntimePolicy
from giveway_admission.settings import ProxySettings
from giveway_admission.ticket_desk import TicketDesk
from giveway_admission.ticket_store import TicketStore

_logger = logging.getLogger(__name__)

_FLUSH_S = 2.0
"""How long the last bytes to clients may take at the end."""


class PortTakenError(OSError):
    """An address can't be listened on; the message says which and what to do."""


class Server:
    """One proxy from start to end. An async context manager: leaving it cuts what still runs."""

    def __init__(self, settings: ProxySettings) -> None:
        self.settings = settings
        self.version = importlib.metadata.version("giveway")
        self.metrics = Metrics(version=self.version)
        self._watch: PolicyWatch | None = None
        self._watching: list[asyncio.Task[None]] = []
        self.api_watch: ApiWatch | None = None
        """None: no ConfigMap is watched through the API server."""
        self.policy_faults: tuple[Fault, ...] = ()
        """Why what was written last is not in force, as far as it is not."""
        self._proxy: Proxy | None = None
        self._drain: Drain | None = None
        self._listener: asyncio.Server | None = None
        self._admin: AdminPort | None = None
        self._watcher: EngineWatcher | None = None
        self.data_url = ""
        self.admin_url = ""

    @property
    def proxy(self) -> Proxy:
        assert self._proxy is not None, "the server was not started"
        return self._proxy

    # Start and end.

    async def start(self) -> None:
        """Raises `PolicyError` for a policy that can't be used, `PortTakenError` for a port,
        `TicketStoreError` for a folder of tickets."""
        settings = self.settings
        loop = asyncio.get_running_loop()
        document = self._first_policy()
        policy = RuntimePolicy.build(document)
        self.metrics.configure(policy)
        proxy = self._proxy = Proxy(settings, policy, loop=loop, metrics=self.metrics)
        proxy.connection_limit = raise_file_limit(wanted=settings.maximum_connections)
        self._drain = Drain(proxy)
        if settings.tickets is not None:
            tickets = TicketDesk(proxy, TicketStore(settings.tickets))
            await tickets.open()
            proxy.tickets = tickets
        self._watcher = EngineWatcher(
            settings.upstream.rstrip("/") + "/metrics",
            on_preemptions=proxy.admitter.report_preemptions,
            headers=_engine_headers(settings),
        )
        self.metrics.set_sources(
            proxy.admitter.statistics,
            engine_up=lambda: proxy.engine_up,
            draining=lambda: proxy.draining,
            engine=lambda: self.engine_reading_now,
        )
        self._listener = await self._listen(proxy)
        self.data_url = _url(settings.host, self._listener.sockets[0].getsockname()[1])
        await self._start_admin()
        proxy.probe.start()
        self._watcher.start()
        if self._watch is not None:
            self._watching.append(asyncio.create_task(self._watch.run(), name="policy-watch"))
        if self.api_watch is not None:
            self._watching.append(asyncio.create_task(self.api_watch.run(), name="api-watch"))
        if proxy.tickets is not None:
            proxy.tickets.resume()
        gc.collect()
        gc.freeze()

    async def _listen(self, proxy: Proxy) -> asyncio.Server:
        settings = self.settings
        try:
            return await proxy.loop.create_server(
                lambda: ClientConnection(proxy),
                settings.host,
                settings.port,
                backlog=settings.backlog,
            )
        except OSError as error:
            raise PortTakenError(
                _explain_port(error, settings.host, settings.port, "--host", "--port")
            ) from error

    async def _start_admin(self) -> None:
        settings = self.settings
        self._admin = AdminPort(
            make_admin_application(self),
            head_timeout_s=settings.header_timeout_s,
            write_timeout_s=settings.write_timeout_s,
            minimum_read_bytes_per_s=settings.minimum_read_bytes_per_s,
        )
        try:
            port = await self._admin.start(settings.admin_host, settings.admin_port)
        except OSError as error:
            raise PortTakenError(
                _explain_port(
                    error, settings.admin_host, settings.admin_port, "--admin-host", "--admin-port"
                )
            ) from error
        self.admin_url = _url(settings.admin_host, port)

    async def stop(self) -> None:
        """End: what still runs is cut, what is written goes out."""
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        if self._watcher is not None:
            await self._watcher.stop()
        if self._listener is not None:
            self._listener.close()
        if self._proxy is not None:
            await self._flush(self._proxy)
            if self._proxy.tickets is not None:
                await self._proxy.tickets.close()
            self._proxy.close()
        if self._admin is not None:
            await self._admin.stop()
        if self._listener is not None:
            await self._listener.wait_closed()
        gc.unfreeze()

    async def _flush(self, proxy: Proxy) -> None:
        """Let the last answers go out; who does not take them in time does not get them."""
        proxy.draining = True
        gone = asyncio.Event()
        proxy.deserted = gone.set
        for connection in list(proxy.connections):
            connection.close_idle()
        if proxy.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_S):
                    await gone.wait()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    # Policy.

    def _first_policy(self) -> PolicyDocument:
        settings = self.settings
        source: LocalPolicies | MountedDocuments
        if settings.policy is not None:
            source = LocalPolicies(settings.policy, policy_name=settings.policy_name)
        elif settings.policy_document is not None or settings.watch_config_map is not None:
            if settings.watch_config_map is not None:
                self.api_watch = ApiWatch(api_settings(settings))
            source = MountedDocuments(
                settings.policy_document,
                policy_name=settings.policy_name,
                key_digests=settings.key_digests,
                watched=self.api_watch,
            )
        else:
            return default_document()
        self._watch = PolicyWatch(source, on_change=self._use, on_fault=self._tell_faults)
        return self._watch.start()

    def _use(self, document: PolicyDocument) -> None:
        self.proxy.configure(RuntimePolicy.build(document))
        log_event(
            _logger,
            logging.INFO,
            "policy in force",
            policy=str(document.policy),
            epoch=document.epoch,
            generation=document.generation,
        )

    def _tell_faults(self, faults: tuple[Fault, ...]) -> None:
        if not faults:
            log_event(_logger, logging.INFO, "policy without faults again")
        for fault in faults:
            if fault not in self.policy_faults:  # each is told once, however long it stays
                self.metrics.policy_rejected(fault.kind.value)
                log_event(_logger, logging.ERROR, "policy fault", fault=str(fault))
        self.policy_faults = faults

    # What the admin port asks (`AdminState`).

    @property
    def recent_decisions(self) -> RecentDecisions:
        return self.proxy.recent_decisions

    @property
    def runtime_policy(self) -> RuntimePolicy:
        return self.proxy.policy

    @property
    def drain_token(self) -> str | None:
        return self.settings.drain_token

    @property
    def engine_up(self) -> bool:
        return self.proxy.engine_up

    @property
    def engine_reading(self) -> EngineReading | None:
        return None if self._watcher is None else self._watcher.reading

    @property
    def engine_reading_now(self) -> EngineReading:
        assert self._watcher is not None
        return self._watcher.reading

    def statistics(self) -> Statistics:
        return self.proxy.admitter.statistics()

    def ready(self) -> tuple[bool, list[str]]:
        reasons = []
        if self.proxy.draining:
            reasons.append("draining")
        if not self.proxy.engine_up:
            reasons.append("the engine does not answer its health check")
        return not reasons, reasons

    async def drain(self, timeout_s: float | None) -> bool:
        assert self._drain is not None
        return await self._drain.drain(timeout_s)


async def serve_until_signal(settings: ProxySettings) -> int:
    """Run until SIGTERM or SIGINT; drain; the exit code. A second signal ends it at once.

    SIGHUP ends nothing where no terminal is that could have closed: elsewhere it asks servers to
    read their configuration again, which happens here by itself.
    """
    async with Server(settings) as server:
        first, second = asyncio.Event(), asyncio.Event()

        def take_signal() -> None:
            (second if first.is_set() else first).set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, take_signal)
        at_terminal = sys.stdin is not None and sys.stdin.isatty()
        loop.add_signal_handler(signal.SIGHUP, take_signal if at_terminal else _told_to_read_again)
        _say(f"data {server.data_url} admin {server.admin_url}\n")
        await first.wait()
        drained = asyncio.ensure_future(server.drain(settings.drain_timeout_s))
        hurried = asyncio.ensure_future(second.wait())
        await asyncio.wait({drained, hurried}, return_when=asyncio.FIRST_COMPLETED)
        for task in (drained, hurried):
            task.cancel()
        await asyncio.gather(drained, hurried, return_exceptions=True)
    return 0


def _told_to_read_again() -> None:
    log_event(_logger, logging.INFO, "SIGHUP: changed policies are read without it")


def api_settings(settings: ProxySettings) -> ApiSettings:
    """Where the ConfigMap is that `watch_config_map` names."""
    namespace, _, name = (settings.watch_config_map or "").partition("/")
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    shown = f"[{host}]" if ":" in host else host
    url = settings.kube_api or f"https://{shown}:{port}"
    return ApiSettings(
        namespace=namespace,
        name=name,
        url=url.rstrip("/"),
        token_file=settings.kube_token_file,
        ca_file=settings.kube_ca_file if url.startswith("https:") else None,
    )


def _say(line: str) -> None:
    """Tell whoever reads standard output. That nobody can read it is no reason not to serve."""
    try:
        sys.stdout.write(line)
        sys.stdout.flush()
    except OSError as error:
        log_event(_logger, logging.WARNING, "standard output can't be written", error=error)
        with open(os.devnull, "w") as nowhere:  # or the end of the process would try again
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _url(host: str, port: int) -> str:
    shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host  # noqa: S104 - to be reached
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def _explain_port(error: OSError, host: str, port: int, host_flag: str, port_flag: str) -> str:
    return (
        f"can't listen on {host}:{port}: {explain_os_error(error)}. "
        f"Choose another with {host_flag} and {port_flag} (0: one that is free)."
    )


def _engine_headers(settings: ProxySettings) -> dict[str, str]:
    key = settings.engine_api_key
    return {} if key is None else {"Authorization": f"Bearer {key}"}
