"""When is something new, so that a pass is worth while before its time?

kopf watches (`on.event` alone: nothing is written on anybody's object) in a thread with a loop of
its own, so that nothing in it can hold up ours. Its events wake a pass and tell it nothing: the
pass lists for itself. An event that brings nothing that a pass would look at does not wake: our own
status, a pod that is as ready as before.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

import kopf
from kubernetes import client

from giveway_operator.kube_client import PODS, SLO_POLICIES, TENANT_PRIORITIES, Resource
from giveway_operator.snapshots import read_pod

_log = logging.getLogger(__name__)
RESTART_S: Final = 10.0
"""After which kopf is started anew if it ended: no CRDs yet, or a fault in it."""
STOP_S: Final = 5.0


class Novelties:
    """Which events are new. Remembers one mark for each object that is there."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._marks: dict[str, Hashable] = {}

    @property
    def remembered(self) -> int:
        """How many objects it has a mark of."""
        return len(self._marks)

    def see(self, kind: str, event: str | None, body: Mapping[str, Any]) -> None:
        """`event`: ADDED, MODIFIED or DELETED; None: it was there when the watch began."""
        uid = str(body.get("metadata", {}).get("uid", ""))
        if event == "DELETED":
            if self._marks.pop(uid, None) is not None:
                self._wake()
            return
        mark = _mark(kind, body)
        if self._marks.get(uid) != mark:
            self._marks[uid] = mark
            self._wake()


def _mark(kind: str, body: Mapping[str, Any]) -> Hashable:
    if kind == PODS.kind:
        pod = read_pod(body)
        return pod.ready, tuple(sorted(pod.labels.items()))
    metadata = body.get("metadata", {})
    return metadata.get("generation"), metadata.get("deletionTimestamp")


class KopfWatch:
    """Runs kopf until it is stopped."""

    def __init__(
        self,
        configure: Callable[[], client.Configuration],
        *,
        namespaces: tuple[str, ...],
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called on the event loop of whoever calls `start`."""
        self._configure = configure
        self._namespaces = namespaces
        self._wake = wake
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()

        def wake() -> None:
            if not self._stop.is_set():
                loop.call_soon_threadsafe(self._wake)

        self._thread = threading.Thread(target=self._run, args=(wake,), name="kopf", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, STOP_S)

    def _run(self, wake: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                asyncio.run(self._watch(wake))
            except Exception as error:
                _log.warning("watching ended: %s; it begins anew in %g s", error, RESTART_S)
            self._stop.wait(RESTART_S)

    async def _watch(self, wake: Callable[[], None]) -> None:
        registry = kopf.OperatorRegistry()
        novelties = Novelties(wake)
        for resource in (SLO_POLICIES, TENANT_PRIORITIES, PODS):
            _observe(registry, resource, novelties)
        kopf.on.login(registry=registry)(lambda **_: connection_info(self._configure()))
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.scanning.disabled = True  # or it would need rights on CRDs and namespaces
        await kopf.operator(
            registry=registry,
            settings=settings,
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            stop_flag=self._stop,
        )


def _observe(registry: kopf.OperatorRegistry, resource: Resource, novelties: Novelties) -> None:
    @kopf.on.event(resource.group, resource.version, resource.plural, registry=registry)
    def see(type: str | None, body: kopf.Body, **_: Any) -> None:  # noqa: A002 - kopf's names
        novelties.see(resource.kind, type, body)


def connection_info(configuration: client.Configuration) -> kopf.ConnectionInfo:
    """The same server and credentials for kopf."""
    bearer = configuration.get_api_key_with_prefix("BearerToken") or ""
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme="Bearer" if bearer else None,
        token=bearer.partition(" ")[2] or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )
