"""An API server in memory, for passes without a cluster.

As much of one as `KubeClient` promises: versions, server-side apply with one owner of each field
(the operator), statuses apart from the rest, preconditions. Every write is in `writes`.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from giveway_operator.kube_client import (
    ConflictError,
    KubeError,
    NotFoundError,
    Object,
    Resource,
)

Key = tuple[str, str, str]
"""Plural, namespace, name."""


class FakeKube:
    """`fail` is called before each request with its verb and resource, and may raise."""

    def __init__(self) -> None:
        self.objects: dict[Key, dict[str, Any]] = {}
        self.writes: list[tuple[str, Key]] = []
        self.requests = 0
        self.fail: Callable[[str, Resource, str], KubeError | None] = lambda *_: None
        self._version = 0

    # For the test.

    def put(self, resource: Resource, value: Mapping[str, Any]) -> None:
        """As a person would, with kubectl."""
        metadata = value["metadata"]
        key = (resource.plural, metadata.get("namespace", ""), metadata["name"])
        before = self.objects.get(key, {})
        stored = copy.deepcopy(dict(value))
        generation = before.get("metadata", {}).get("generation", 0)
        if before.get("spec") != stored.get("spec"):
            generation += 1
        stored["metadata"] |= {
            "uid": before.get("metadata", {}).get("uid") or f"uid-{self._version}",
            "generation": generation,
            "creationTimestamp": before.get("metadata", {}).get("creationTimestamp")
            or f"2026-01-01T00:00:{self._version % 60:02}Z",
        }
        if "status" in before:
            stored["status"] = before["status"]
        self._store(key, stored)

    def get(self, resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
        return self.objects[resource.plural, namespace, name]

    def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        del self.objects[resource.plural, namespace, name]

    def take_writes(self) -> list[tuple[str, Key]]:
        taken, self.writes = self.writes, []
        return taken

    # `KubeClient`.

    async def list(
        self, resource: Resource, *, namespace: str | None = None, labels: str = ""
    ) -> tuple[Object, ...]:
        self._ask("list", resource, namespace or "")
        wanted = dict(each.split("=", 1) for each in labels.split(",") if each)
        return tuple(
            copy.deepcopy(each)
            for (plural, place, _), each in self.objects.items()
            if plural == resource.plural
            and namespace in (None, place)
            and wanted.items() <= each["metadata"].get("labels", {}).items()
        )

    async def read(self, resource: Resource, name: str, *, namespace: str | None = None) -> Object:
        self._ask("get", resource, namespace or "")
        return copy.deepcopy(self._found((resource.plural, namespace or "", name)))

    async def apply(self, resource: Resource, wanted: Object, *, status: bool = False) -> Object:
        key = self._key(resource, wanted)
        self._write("status" if status else "apply", resource, key)
        if status:
            found = self._found(key)
            self._store(key, {**found, "status": copy.deepcopy(wanted["status"])})
            return copy.deepcopy(self.objects[key])
        before = self.objects.get(key, {"metadata": {}})
        self._check_version(before, wanted)
        stored = {**before, **copy.deepcopy(dict(wanted))}
        stored["metadata"] = {**before["metadata"], **wanted["metadata"]}
        if resource.plural in ("configmaps", "secrets"):
            for field in ("data", "binaryData"):
                theirs = before.get("foreign", {})
                stored[field] = (
                    {**theirs, **wanted.get(field, {})}
                    if field == "data"
                    else dict(wanted.get(field, {}))
                )
        self._store(key, stored)
        return copy.deepcopy(self.objects[key])

    async def create(self, resource: Resource, wanted: Object) -> Object:
        metadata = wanted.get("metadata", {})
        name = metadata.get("name") or f"{metadata.get('generateName', '')}{self._version}"
        key = (resource.plural, metadata.get("namespace", ""), name)
        self._write("create", resource, key)
        if key in self.objects:
            raise ConflictError("it exists already")
        self._store(key, {**copy.deepcopy(dict(wanted)), "metadata": {**metadata, "name": name}})
        return copy.deepcopy(self.objects[key])

    async def replace(self, resource: Resource, wanted: Object) -> Object:
        key = self._key(resource, wanted)
        self._write("replace", resource, key)
        self._check_version(self._found(key), wanted)
        stored = copy.deepcopy(dict(wanted))
        stored.pop("foreign", None)
        self._store(key, stored)
        return copy.deepcopy(self.objects[key])

    async def delete(
        self, resource: Resource, name: str, *, namespace: str | None, resource_version: str
    ) -> None:
        key = (resource.plural, namespace or "", name)
        self._write("delete", resource, key)
        if key in self.objects:
            wanted = {"metadata": {"resourceVersion": resource_version}}
            self._check_version(self.objects[key], wanted)
            del self.objects[key]

    # Inside.

    def _ask(self, verb: str, resource: Resource, namespace: str) -> None:
        self.requests += 1
        error = self.fail(verb, resource, namespace)
        if error is not None:
            raise error

    def _write(self, verb: str, resource: Resource, key: Key) -> None:
        self._ask(verb, resource, key[1])
        self.writes.append((verb, key))

    def _key(self, resource: Resource, value: Object) -> Key:
        metadata = value["metadata"]
        return (resource.plural, metadata.get("namespace", ""), metadata["name"])

    def _found(self, key: Key) -> dict[str, Any]:
        if key not in self.objects:
            raise NotFoundError(f"{key} is not there")
        return self.objects[key]

    def _check_version(self, before: Object, wanted: Object) -> None:
        version = wanted["metadata"].get("resourceVersion")
        if version is not None and version != before["metadata"].get("resourceVersion"):
            raise ConflictError("it was changed meanwhile")

    def _store(self, key: Key, value: dict[str, Any]) -> None:
        self._version += 1
        value["metadata"] = {**value["metadata"], "resourceVersion": str(self._version)}
        self.objects[key] = value
