"""How does the operator speak with the API server?

`KubeClient` is all that it asks of one. `ApiServer` is the real one: the `kubernetes` library for
configuration, TLS and credentials, plain JSON instead of its models (ten thousand tenants are as
many dictionaries, not a million small objects), in threads of its own, so that no slow answer
stops the event loop. Each request has a time-out, and is tried once: whoever asked decides what a
failure means. Errors are split by what can be done about them.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError

FIELD_MANAGER: Final = "giveway-operator"
PAGE_SIZE = 500
"""Objects of one answer: as kubectl asks for."""
MOST_PAGES = 400
"""200,000 objects. More is no cluster that this was thought for."""
THREADS = 8
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 20.0
"""Between two packets of an answer. API servers end a request themselves after 60 s."""
REQUEST_TIMEOUT_S = 60.0

Object = Mapping[str, Any]
"""An object of Kubernetes, as JSON."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object, and its place in the API."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None) -> str:
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        where = f"/namespaces/{quote(namespace, '')}" if self.namespaced and namespace else ""
        return f"{root}{where}/{self.plural}" + (f"/{quote(name, '')}" if name else "")


SLO_POLICIES = Resource("giveway.dev", "v1alpha1", "SLOPolicy", "slopolicies")
TENANT_PRIORITIES = Resource(
    "giveway.dev", "v1alpha1", "TenantPriority", "tenantpriorities", namespaced=False
)
PODS = Resource("", "v1", "Pod", "pods")
SECRETS = Resource("", "v1", "Secret", "secrets")
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
EVENTS = Resource("events.k8s.io", "v1", "Event", "events")
LEASES = Resource("coordination.k8s.io", "v1", "Lease", "leases")
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    namespaced=False,
)


class KubeError(Exception):
    """The API server did not do what was asked."""


class ConflictError(KubeError):
    """Somebody else changed the object meanwhile, or owns the field: look again."""


class ForbiddenError(KubeError):
    """The operator lacks a right. For whoever wrote its RBAC rules."""


class NotFoundError(KubeError):
    """There is no such object, or no such kind of object: are the CRDs installed?"""


class GoneError(KubeError):
    """A list or watch is too old to go on: begin anew."""


class InvalidError(KubeError):
    """The API server refuses what was written. A fault of giveway, or a CRD of another version."""


class UnavailableError(KubeError):
    """No answer, or one that says: later."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        """None: the API server did not say when."""


class KubeClient(Protocol):
    """What the operator asks of an API server. Everything raises `KubeError` and nothing else."""

    async def list(
        self, resource: Resource, *, namespace: str | None = None, labels: str = ""
    ) -> tuple[Object, ...]:
        """All of them; `namespace` None: of the whole cluster."""

    async def read(self, resource: Resource, name: str, *, namespace: str | None = None) -> Object:
        """One of them."""

    async def apply(self, resource: Resource, wanted: Object, *, status: bool = False) -> Object:
        """Server-side apply, as it is after it. With `resourceVersion` in its metadata only if
        nobody changed it since. `status`: the status alone."""

    async def create(self, resource: Resource, wanted: Object) -> Object:
        """A new one."""

    async def replace(self, resource: Resource, wanted: Object) -> Object:
        """The whole object, only if nobody changed it since its `resourceVersion`."""

    async def delete(
        self, resource: Resource, name: str, *, namespace: str | None, resource_version: str
    ) -> None:
        """Only if nobody changed it since. Gone already is as good."""


class ConfigurationError(ValueError):
    """It is not known how to reach an API server. For whoever starts the operator."""


def load_configuration(kubeconfig: Path | None) -> client.Configuration:
    """Of the file, else of the pod's service account, else as kubectl finds it."""
    loaded = client.Configuration()
    try:
        if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=loaded)  # type: ignore[no-untyped-call]
        else:
            file = None if kubeconfig is None else str(kubeconfig)
            config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=file, client_configuration=loaded
            )
    except (ConfigException, OSError, ValueError) as error:
        where = f"--kubeconfig {kubeconfig}" if kubeconfig else "no API server is known"
        raise ConfigurationError(
            f"{where}: {str(error)[:300]}; run in a pod with a service account, or give "
            "--kubeconfig FILE"
        ) from None
    loaded.retries = False
    if not loaded.verify_ssl:  # it was asked for; a warning at each request helps nobody
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return loaded


class ApiServer:
    """The real one. Close it at the end."""

    def __init__(self, configuration: client.Configuration) -> None:
        configuration.connection_pool_maxsize = THREADS
        self._client = client.ApiClient(configuration)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="kube")

    def close(self) -> None:
        """What is still asked ends by its own time-outs."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with contextlib.suppress(Exception):
            self._client.rest_client.pool_manager.clear()

    async def list(
        self, resource: Resource, *, namespace: str | None = None, labels: str = ""
    ) -> tuple[Object, ...]:
        found: list[Object] = []
        query = {"limit": str(PAGE_SIZE)} | ({"labelSelector": labels} if labels else {})
        path = resource.path(namespace)
        for _ in range(MOST_PAGES):
            page = await self._ask("GET", path, query=query)
            found += page.get("items") or ()
            more = page.get("metadata", {}).get("continue")
            if not more:
                return tuple(found)
            query["continue"] = more
        raise UnavailableError(f"GET {path}: the list does not end")

    async def read(self, resource: Resource, name: str, *, namespace: str | None = None) -> Object:
        return await self._ask("GET", resource.path(namespace, name))

    async def apply(self, resource: Resource, wanted: Object, *, status: bool = False) -> Object:
        wanted = {"apiVersion": resource.api_version, "kind": resource.kind, **wanted}
        metadata = wanted["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        return await self._ask(
            "PATCH",
            f"{path}/status" if status else path,
            query={"fieldManager": FIELD_MANAGER, "force": "true"},
            body=wanted,
            content_type="application/apply-patch+yaml",
        )

    async def create(self, resource: Resource, wanted: Object) -> Object:
        wanted = {"apiVersion": resource.api_version, "kind": resource.kind, **wanted}
        path = resource.path(wanted.get("metadata", {}).get("namespace"))
        return await self._ask("POST", path, query={"fieldManager": FIELD_MANAGER}, body=wanted)

    async def replace(self, resource: Resource, wanted: Object) -> Object:
        metadata = wanted["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        return await self._ask("PUT", path, query={"fieldManager": FIELD_MANAGER}, body=wanted)

    async def delete(
        self, resource: Resource, name: str, *, namespace: str | None, resource_version: str
    ) -> None:
        body = {"preconditions": {"resourceVersion": resource_version}}
        with contextlib.suppress(NotFoundError):
            await self._ask("DELETE", resource.path(namespace, name), body=body)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await loop.run_in_executor(
                    self._threads, self._ask_and_wait, method, path, query, body, content_type
                )
        except TimeoutError:
            raise UnavailableError(
                f"{method} {path}: no answer within {REQUEST_TIMEOUT_S:g} s"
            ) from None

    def _ask_and_wait(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Object | None,
        content_type: str,
    ) -> dict[str, Any]:
        try:
            _, url, headers, _, _ = self._client.param_serialize(
                method,
                path,
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json", "Content-Type": content_type},
                auth_settings=["BearerToken"],
            )
            is_json = content_type == "application/json"
            response = self._client.rest_client.request(  # type: ignore[no-untyped-call]
                method,
                url,
                headers=headers,
                body=body if is_json or body is None else json.dumps(body),
                _request_timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),
            )
            data = response.read()
        except (HTTPError, ApiException, OSError, ConfigException) as error:
            reason = str(error)[:300] or type(error).__name__
            raise UnavailableError(f"{method} {path}: {reason}") from None
        if response.status >= 300:
            retry_after = response.getheader("Retry-After")
            raise error_of(f"{method} {path}", response.status, data, retry_after=retry_after)
        try:
            answer = json.loads(data)
        except ValueError:
            raise UnavailableError(f"{method} {path}: the answer is not JSON") from None
        if not isinstance(answer, dict):
            raise UnavailableError(f"{method} {path}: the answer is no object")
        return answer


def error_of(asked: str, status: int, data: bytes, *, retry_after: str | None = None) -> KubeError:
    """Which error an answer is. 401 is `UnavailableError`: a token that is just being renewed."""
    try:
        reason = str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        reason = data[:200].decode("utf-8", "replace")
    message = f"{asked}: {status} {reason[:500]}"
    match status:
        case 403:
            return ForbiddenError(message)
        case 404:
            return NotFoundError(message)
        case 409:
            return ConflictError(message)
        case 410:
            return GoneError(message)
        case 400 | 405 | 413 | 415 | 422:
            return InvalidError(message)
        case _:
            is_number = retry_after is not None and retry_after.isdecimal()
            seconds = float(retry_after) if is_number and retry_after else None
            return UnavailableError(message, retry_after_s=seconds)
