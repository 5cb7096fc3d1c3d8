"""How does a proxy hear of a new policy within a second?

kubelet brings a change of a ConfigMap into a pod within up to a minute; the API server tells at
once whoever watches. So a proxy that may (`--watch-config-map`) watches that one ConfigMap beside
its mounted folder, with the token that kubelet projects into the pod, read anew for each request
since it is replaced every hour. Nothing depends on it: without an answer the folder is still there,
and of two documents the newer one counts (`mounted_documents`).

List, then watch from the list's version; after a 410, an end or an error list again, after a pause
with full jitter, since thousands of proxies lose an API server at the same moment. A server that
says nothing, not even a bookmark (once a minute), is left after `SILENCE_S`.
"""

import asyncio
import base64
import binascii
import json
import logging
import random
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from giveway_policy.faults import shown

from giveway_admission.logs import log_event

SILENCE_S: Final = 90.0
"""API servers send a bookmark about once a minute."""
SESSION_S: Final = (240, 480)
"""After which the server is to end a watch, so that not all of them end together."""
CONNECT_TIMEOUT_S: Final = 10.0
LIST_TIMEOUT_S: Final = 30.0
FIRST_BACKOFF_S: Final = 1.0
LONGEST_BACKOFF_S: Final = 30.0
LARGEST_ANSWER_BYTES: Final = 8 * 2**20
"""A ConfigMap holds 1 MiB; as JSON, in base64 and with who owns which field, less than four."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """Which ConfigMap, on which API server, as whom."""

    namespace: str
    name: str
    url: str
    token_file: Path | None = None
    """None: no token is sent."""
    ca_file: Path | None = None
    """None: what the system trusts."""
    silence_s: float = SILENCE_S
    """After which a server that says nothing is left."""
    first_backoff_s: float = FIRST_BACKOFF_S
    """Longest pause before the first new attempt; doubled with each failure in a row."""
    largest_answer_bytes: int = LARGEST_ANSWER_BYTES
    """Of one event, or one list."""

    @property
    def place(self) -> str:
        return f"ConfigMap {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiWatchStatistics:
    connected: bool
    """Whether the watch runs now."""
    connections: int
    changes: int
    last_error: str
    """Empty: the last attempt was good."""


class _WatchEndedError(Exception):
    """Begin anew, and why. `quietly`: that is how watches end."""

    def __init__(self, message: str, *, quietly: bool = False) -> None:
        super().__init__(message)
        self.quietly = quietly


class ApiWatch:
    """The ConfigMap as the API server has it (`WatchedEntries`). Run it as a task."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        self._entries: Mapping[str, bytes] = {}
        self._version = ""
        self._version_to_watch = ""
        self._connected = False
        self._connections = 0
        self._changes = 0
        self._last_error = ""

    @property
    def version(self) -> str:
        return self._version

    def entries(self) -> Mapping[str, bytes]:
        return self._entries

    def statistics(self) -> ApiWatchStatistics:
        return ApiWatchStatistics(
            connected=self._connected,
            connections=self._connections,
            changes=self._changes,
            last_error=self._last_error,
        )

    async def run(self) -> None:
        """Until cancelled. Raises nothing else."""
        failures = 0
        while True:
            try:
                async with self._session() as session:
                    await self._list(session)
                    failures = 0
                    while True:
                        await self._watch(session)
                        await asyncio.sleep(backoff_s(0, self._settings.first_backoff_s))
            except _WatchEndedError as error:
                reason, quietly = str(error), error.quietly
            except Exception as error:
                reason, quietly = shown(str(error) or type(error).__name__), False
            self._connected = False
            failures = 0 if quietly else failures + 1
            self._tell(reason, quietly=quietly)
            await asyncio.sleep(backoff_s(failures, self._settings.first_backoff_s))

    def _tell(self, reason: str, *, quietly: bool) -> None:
        """Each reason once, until it is another one."""
        if not quietly and reason != self._last_error:
            place = self._settings.place
            log_event(_log, logging.WARNING, "watch ended", place=place, reason=reason)
        self._last_error = "" if quietly else reason

    def _session(self) -> aiohttp.ClientSession:
        settings = self._settings
        context: ssl.SSLContext | bool = True
        if settings.ca_file is not None:
            context = ssl.create_default_context(cafile=str(settings.ca_file))
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=1),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=settings.silence_s
            ),
        )

    @property
    def _url(self) -> str:
        settings = self._settings
        return f"{settings.url}/api/v1/namespaces/{quote(settings.namespace, '')}/configmaps"

    @property
    def _selector(self) -> str:
        return f"metadata.name={self._settings.name}"

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if self._settings.token_file is not None:
            token = self._settings.token_file.read_text(encoding="ascii").strip()
            headers["Authorization"] = f"Bearer {token}"
        return headers

    async def _list(self, session: aiohttp.ClientSession) -> None:
        query = {"fieldSelector": self._selector}
        async with (
            asyncio.timeout(LIST_TIMEOUT_S),
            session.get(self._url, params=query, headers=self._headers()) as answer,
        ):
            data = await _bounded(answer, self._settings.largest_answer_bytes)
            _check(answer.status, data)
        found = json.loads(data)
        items = found.get("items") or []
        self._version_to_watch = str(found["metadata"]["resourceVersion"])
        self._take(items[0] if items else None)
        self._last_error = ""

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        query = {
            "fieldSelector": self._selector,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version_to_watch,
            "timeoutSeconds": str(random.randint(*SESSION_S)),  # noqa: S311 - to spread
        }
        async with session.get(self._url, params=query, headers=self._headers()) as answer:
            if answer.status != 200:
                _check(answer.status, await _bounded(answer, self._settings.largest_answer_bytes))
            self._connected = True
            self._connections += 1
            async for line in _lines(answer, self._settings.largest_answer_bytes):
                self._see(json.loads(line))

    def _see(self, event: Mapping[str, Any]) -> None:
        kind, value = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            code = value.get("code")
            message = f"{code}: {shown(str(value.get('message', '')))}"
            raise _WatchEndedError(message, quietly=code == 410)
        version = value.get("metadata", {}).get("resourceVersion")
        if version:
            self._version_to_watch = str(version)
        if kind in ("ADDED", "MODIFIED"):
            self._take(value)
        elif kind == "DELETED":
            self._take(None)

    def _take(self, value: Mapping[str, Any] | None) -> None:
        """A ConfigMap that is gone has no entries, and takes nothing out of force."""
        metadata = {} if value is None else value.get("metadata", {})
        version = f"{metadata.get('uid', '')} {metadata.get('resourceVersion', '')}"
        if version != self._version:
            self._entries = {} if value is None else self._entries_of(value)
            self._version = version
            self._changes += 1

    def _entries_of(self, value: Mapping[str, Any]) -> dict[str, bytes]:
        place = self._settings.place
        found = {
            f"{place}: {name}": text.encode("utf-8", "surrogatepass")
            for name, text in (value.get("data") or {}).items()
        }
        for name, text in (value.get("binaryData") or {}).items():
            try:
                found[f"{place}: {name}"] = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                found[f"{place}: {name}"] = b""  # unreadable, and said so where it is parsed
        return found


def backoff_s(failures: int, first_s: float = FIRST_BACKOFF_S) -> float:
    """Between one attempt and the next: full jitter, doubling with failures in a row."""
    longest_s = min(LONGEST_BACKOFF_S, first_s * 2.0 ** min(failures, 10))
    return random.uniform(0.0, longest_s)  # noqa: S311 - to spread, not to hide


def _check(status: int, data: bytes) -> None:
    if status == 200:
        return
    try:
        reason = str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        reason = data[:200].decode("utf-8", "replace")
    raise _WatchEndedError(f"HTTP {status}: {shown(reason)}", quietly=status == 410)


async def _bounded(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > limit:
            raise _WatchEndedError(f"an answer of more than {limit} bytes")
    return bytes(body)


async def _lines(answer: aiohttp.ClientResponse, limit: int) -> AsyncIterator[bytes]:
    """aiohttp's own lines are shorter than a ConfigMap."""
    rest = bytearray()
    async for chunk in answer.content.iter_any():
        rest += chunk
        if b"\n" in chunk:
            *lines, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            for line in lines:
                if line:
                    yield line
        if len(rest) > limit:
            raise _WatchEndedError(f"an event of more than {limit} bytes")
