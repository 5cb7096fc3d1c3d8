"""How is Prometheus asked, so that whatever answers can do no harm?

`prometheus-api-client` blocks, so it runs in a few threads of its own, and nobody waits longer than
the time-out: neither for a connection, nor for an answer that comes byte by byte. What comes back
is checked before anything is made of it: a login page, an error, a partial response (Thanos, Mimir:
some stores did not answer, so counts are too small) and an answer that is too large are failures,
each with its reason, and never an empty result.

Credentials are read from their files at each query, since tokens are renewed. Redirects are not
followed: they would carry headers to somebody else. `.netrc` is not looked at, it would replace the
token; proxies of the environment are.
"""

import asyncio
import io
import json
import ssl
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import requests
from prometheus_api_client import PrometheusConnect
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_environ_proxies
from urllib3.exceptions import HTTPError, ReadTimeoutError
from urllib3.util.retry import Retry

from giveway_operator.promql import Sample

THREADS: Final = 4
"""Queries at once. One that hangs holds its thread for the time-out, not longer."""
_CHUNK_BYTES = 65_536
_GRACE_S = 1.0


class QueryFailure(StrEnum):
    """Why there is no answer; a metrics label."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    TLS = "tls"
    CREDENTIALS = "credentials"
    """401 or 403, or the file with the credentials cannot be read."""
    BAD_QUERY = "bad_query"
    SERVER_ERROR = "server_error"
    TOO_LARGE = "too_large"
    NOT_PROMETHEUS = "not_prometheus"
    """What answers does not speak Prometheus' API: a login page, a redirect, another path."""
    PARTIAL = "partial"


class QueryError(Exception):
    """There is no answer. For whoever runs Prometheus and the operator."""

    def __init__(self, reason: QueryFailure, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings:
    url: str
    """With its prefix: http://prometheus.monitoring:9090/prometheus."""
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with each query, like X-Scope-OrgID of Mimir."""
    bearer_token_file: Path | None = None
    """None: no token."""
    basic_user: str | None = None
    """None: no basic authentication."""
    basic_password_file: Path | None = None
    ca_file: Path | None = None
    """None: the certificates that Python's requests brings."""
    client_certificate_file: Path | None = None
    """For mutual TLS. None: none is shown."""
    client_key_file: Path | None = None
    """None: it is in the certificate's file."""
    connect_timeout_s: float = 5.0
    timeout_s: float = 20.0
    """For the whole of a query: below the usual interval, above what a busy server needs."""
    largest_answer_bytes: int = 16 * 2**20
    """An answer has a few hundred bytes for each class and threshold."""


class PrometheusClient:
    """Queries, off the event loop. Make one for each Prometheus, and close it."""

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="prometheus")
        self._long_executor = ThreadPoolExecutor(1, thread_name_prefix="prometheus-long")
        self._long_turn = asyncio.Semaphore(1)
        self._failures: Counter[QueryFailure] = Counter()
        url = settings.url.rstrip("/")
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.proxies = get_environ_proxies(url)
        self._session.max_redirects = 0
        if settings.ca_file is not None:
            self._session.verify = str(settings.ca_file)
        if settings.client_certificate_file is not None:
            key = settings.client_key_file or settings.client_certificate_file
            self._session.cert = (str(settings.client_certificate_file), str(key))
        self._connection = PrometheusConnect(
            url=url,
            headers={"Accept-Encoding": "identity", **dict(settings.headers)},
            auth=_Credentials(settings),
            session=self._session,
        )
        self._session.mount(url, _CheckedAdapter(settings))

    @property
    def failures(self) -> Mapping[str, int]:
        """How many queries failed, by reason; every reason is there."""
        return {reason.value: self._failures[reason] for reason in QueryFailure}

    async def query(self, promql: str) -> tuple[Sample, ...]:
        """The vector that the query gives now. Raises `QueryError`."""
        return await self._within_time(self._executor, promql)

    async def query_long(self, promql: str) -> tuple[Sample, ...]:
        """The same for a query over a long window: one at a time, beside those of `query`, which
        it never holds up. Waiting for its turn is not counted as its time."""
        async with self._long_turn:
            return await self._within_time(self._long_executor, promql)

    async def _within_time(self, executor: ThreadPoolExecutor, promql: str) -> tuple[Sample, ...]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._settings.timeout_s + _GRACE_S):
                return await loop.run_in_executor(executor, self._ask, promql)
        except TimeoutError:
            self._failures[QueryFailure.TIMEOUT] += 1
            raise QueryError(QueryFailure.TIMEOUT, self._too_slow()) from None
        except QueryError as error:
            self._failures[error.reason] += 1
            raise

    def close(self) -> None:
        """Do not wait for what hangs."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._long_executor.shutdown(wait=False, cancel_futures=True)
        self._session.close()

    def _ask(self, promql: str) -> tuple[Sample, ...]:
        settings = self._settings
        parameters = {"timeout": f"{settings.timeout_s:g}s", "partial_response": "false"}
        try:
            found = self._connection.custom_query(
                promql,
                params=parameters,
                timeout=(settings.connect_timeout_s, settings.timeout_s),
            )
        except QueryError:
            raise
        except requests.exceptions.SSLError as error:
            raise QueryError(QueryFailure.TLS, _short(error)) from None
        except (requests.exceptions.Timeout, ReadTimeoutError):
            raise QueryError(QueryFailure.TIMEOUT, self._too_slow()) from None
        except requests.exceptions.TooManyRedirects:
            raise QueryError(
                QueryFailure.NOT_PROMETHEUS,
                "it answers with a redirect: give the URL that it redirects to, or credentials",
            ) from None
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema) as error:
            raise QueryError(QueryFailure.NOT_PROMETHEUS, _short(error)) from None
        except (requests.exceptions.RequestException, HTTPError, OSError) as error:
            raise QueryError(QueryFailure.UNREACHABLE, _short(error)) from None
        return tuple(_sample(each) for each in found)

    def _too_slow(self) -> str:
        return f"no answer within {self._settings.timeout_s:g} s"


class _Credentials(AuthBase):
    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        settings = self._settings
        if settings.bearer_token_file is not None:
            token = _read(settings.bearer_token_file)
            request.headers["Authorization"] = f"Bearer {token}"
        elif settings.basic_user is not None:
            file = settings.basic_password_file
            password = "" if file is None else _read(file)
            return HTTPBasicAuth(settings.basic_user.encode(), password.encode())(request)
        return request


class _CheckedAdapter(HTTPAdapter):
    """Sends once, reads the answer within its bounds, and refuses what is no answer."""

    def __init__(self, settings: PrometheusSettings) -> None:
        super().__init__(
            pool_maxsize=THREADS + 1,
            max_retries=Retry(0, read=False),  # False: what was raised is not wrapped
        )
        self._settings = settings

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]
        deadline_s = time.monotonic() + self._settings.timeout_s
        options["stream"] = True
        response = super().send(request, **options)
        try:
            body = self._read(response, deadline_s=deadline_s)
        finally:
            response.close()
        response.raw = io.BytesIO(body)
        if not response.is_redirect:
            _check(response.status_code, body)
        return response

    def _read(self, response: requests.Response, *, deadline_s: float) -> bytes:
        body = bytearray()
        limit = self._settings.largest_answer_bytes
        while chunk := response.raw.read1(_CHUNK_BYTES):
            body += chunk
            if len(body) > limit:
                raise QueryError(QueryFailure.TOO_LARGE, f"the answer is larger than {limit} bytes")
            if time.monotonic() > deadline_s:
                raise requests.exceptions.ReadTimeout
        return bytes(body)


def _check(status: int, body: bytes) -> None:
    """Raises `QueryError` unless this is a whole vector."""
    if status in (401, 403):
        raise QueryError(QueryFailure.CREDENTIALS, f"HTTP {status}: {_text(body)}")
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or answer.get("status") not in ("success", "error"):
        reason = QueryFailure.SERVER_ERROR if status >= 500 else QueryFailure.NOT_PROMETHEUS
        raise QueryError(reason, f"HTTP {status}, and not Prometheus' JSON: {_text(body)}")
    if status != 200 or answer["status"] != "success":
        raise QueryError(_failure(status, answer), f"HTTP {status}: {_error(answer)}")
    if answer.get("warnings"):
        warnings = str(answer["warnings"])[:200]
        raise QueryError(QueryFailure.PARTIAL, f"the response is partial: {warnings}")
    if answer.get("isPartial") is True:  # VictoriaMetrics' way of saying it
        raise QueryError(QueryFailure.PARTIAL, "the response is partial")
    data = answer.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "vector":
        raise QueryError(QueryFailure.NOT_PROMETHEUS, "the answer is not a vector")
    if not isinstance(data.get("result"), list):
        raise QueryError(QueryFailure.NOT_PROMETHEUS, "the vector is not a list")


def _failure(status: int, answer: Mapping[str, object]) -> QueryFailure:
    kind = answer.get("errorType")
    if kind in ("timeout", "canceled"):
        return QueryFailure.TIMEOUT
    if status >= 500 or status == 429:
        return QueryFailure.SERVER_ERROR
    return QueryFailure.BAD_QUERY


def _error(answer: Mapping[str, object]) -> str:
    return str(answer.get("error", "no reason given"))[:300]


def _sample(found: object) -> Sample:
    match found:
        case {"metric": dict() as labels, "value": [_, str() as value]}:
            try:
                number = float(value)
            except ValueError:
                number = float("nan")
            return Sample(
                labels={str(name): str(each) for name, each in labels.items()}, value=number
            )
    raise QueryError(QueryFailure.NOT_PROMETHEUS, "a sample of the vector has another form")


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise QueryError(
            QueryFailure.CREDENTIALS, f"{file} cannot be read: {reason.lower()}"
        ) from None


def _short(error: Exception) -> str:
    """The innermost reason, without the URL and the query that requests puts around it."""
    reason: object = error
    while isinstance(reason, Exception):
        inner = getattr(reason, "reason", None) or (reason.args[0] if reason.args else None)
        if isinstance(reason, ssl.SSLError) or not isinstance(inner, Exception):
            break
        reason = inner
    return str(reason)[:300] or type(error).__name__


def _text(body: bytes) -> str:
    return body[:100].decode("utf-8", "replace").strip()
