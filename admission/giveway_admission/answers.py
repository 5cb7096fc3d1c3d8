"""What does a client hear when the answer is ours and not the engine's?

One function makes an answer from an outcome; nothing else in the proxy writes an error. The shape
is that of the API the client speaks: OpenAI's, or Anthropic's on its paths. `code` is the outcome's
word, stable and the same as in the metrics.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import formatdate

from giveway_admission.endpoints import ErrorDialect
from giveway_admission.outcomes import STATUS, Outcome

LONGEST_RETRY_S = 60
"""OpenAI's own client ignores longer hints and then retries at once (B20)."""

REASONS = {
    400: b"Bad Request",
    401: b"Unauthorized",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Content Too Large",
    415: b"Unsupported Media Type",
    417: b"Expectation Failed",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
}

_OPENAI_TYPES = {
    Outcome.INVALID_REQUEST: "invalid_request_error",
    Outcome.NOT_FOUND: "invalid_request_error",
    Outcome.REQUEST_TOO_LARGE: "invalid_request_error",
    Outcome.UNAUTHORIZED: "authentication_error",
    Outcome.RATE_LIMITED: "rate_limit_error",
    Outcome.QUEUE_FULL: "rate_limit_error",
    Outcome.EVICTED: "rate_limit_error",
}
_ANTHROPIC_TYPES = {
    Outcome.INVALID_REQUEST: "invalid_request_error",
    Outcome.NOT_FOUND: "not_found_error",
    Outcome.REQUEST_TOO_LARGE: "request_too_large",
    Outcome.UNAUTHORIZED: "authentication_error",
    Outcome.RATE_LIMITED: "rate_limit_error",
    Outcome.QUEUE_FULL: "rate_limit_error",
    Outcome.EVICTED: "rate_limit_error",
    Outcome.DRAINING: "overloaded_error",
    Outcome.ENGINE_UNAVAILABLE: "overloaded_error",
    Outcome.QUEUE_TIMEOUT: "timeout_error",
    Outcome.ENGINE_TIMEOUT: "timeout_error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAnswer:
    """An answer of ours, ready to be written."""

    outcome: Outcome
    status: int
    body: bytes
    headers: tuple[bytes, ...] = ()
    """Whole header lines, each with its line end."""

    def encode(
        self, *, extra: Sequence[bytes] = (), close: bool = False, with_body: bool = True
    ) -> bytes:
        """The bytes on the wire. `extra`: further header lines."""
        return b"".join(
            (
                b"HTTP/1.1 %d %b\r\nDate: %b\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n"
                % (
                    self.status,
                    REASONS[self.status],
                    formatdate(usegmt=True).encode(),
                    len(self.body),
                ),
                *self.headers,
                *extra,
                b"Connection: close\r\n\r\n" if close else b"\r\n",
                self.body if with_body else b"",
            )
        )

    def encode_event(self) -> bytes:
        """The same as a server-sent event, for a stream whose head is out already."""
        return b"data: " + self.body + b"\n\n"


def make_error(
    outcome: Outcome,
    message: str,
    *,
    dialect: ErrorDialect = ErrorDialect.OPENAI,
    param: str | None = None,
    status: int | None = None,
    retry_after_s: float | None = None,
    headers: tuple[bytes, ...] = (),
) -> ErrorAnswer:
    """What answers an outcome. `status` None: the outcome's own. `retry_after_s` None: no hint."""
    if retry_after_s is not None:
        headers = (*headers, *_retry_lines(retry_after_s))
    return ErrorAnswer(
        outcome=outcome,
        status=STATUS[outcome] if status is None else status,
        body=_encode_body(outcome, message, dialect=dialect, param=param),
        headers=headers,
    )


def _retry_lines(retry_after_s: float) -> tuple[bytes, bytes]:
    """Whole seconds, rounded up, so that a client that waits as told is never too early."""
    exact_s = min(max(retry_after_s, 0.0), float(LONGEST_RETRY_S))
    return (
        b"Retry-After: %d\r\n" % max(1, math.ceil(exact_s)),
        b"retry-after-ms: %d\r\n" % max(1, math.ceil(exact_s * 1000)),
    )


def _encode_body(
    outcome: Outcome, message: str, *, dialect: ErrorDialect, param: str | None
) -> bytes:
    content: dict[str, object]
    if dialect is ErrorDialect.ANTHROPIC:
        kind = _ANTHROPIC_TYPES.get(outcome, "api_error")
        content = {
            "type": "error",
            "error": {"type": kind, "message": message, "code": outcome.value},
        }
    else:
        kind = _OPENAI_TYPES.get(outcome, "server_error")
        content = {
            "error": {"message": message, "type": kind, "param": param, "code": outcome.value}
        }
    return json.dumps(content, separators=(",", ":")).encode()
