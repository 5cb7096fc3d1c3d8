"""What does a client hear from us, and how does a request end?

`Answering` is the half of an `Exchange` that faces the client: how far the request is, the answers
that are ours and not the engine's (refusals, comments to a waiting stream, tickets), the header
lines of ours in every answer, and the one place where a request ends and is counted.
"""

import logging
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

from giveway_scheduler import Usage

from giveway_admission.answers import ErrorAnswer, make_error
from giveway_admission.attempts import Attempt
from giveway_admission.endpoints import Endpoint, ErrorDialect, Refused
from giveway_admission.logs import log_event
from giveway_admission.outcomes import Outcome
from giveway_admission.quota_headers import quota_lines
from giveway_admission.request_heads import RequestHead
from giveway_admission.response_heads import Framing, ResponseHead, encode_client_head
from giveway_admission.runtime_policies import Admission
from giveway_admission.tickets import TICKET_ENDPOINT, TICKETS_PREFIX

if TYPE_CHECKING:
    from giveway_admission.proxying import Proxy

_logger = logging.getLogger(__name__)
_COMMENT: Final = b"e\r\n: keep-alive\n\n\r\n"


class State(Enum):
    """How far an exchange is."""

    READING = auto()
    WAITING = auto()
    SENT = auto()
    ANSWERING = auto()
    ENDED = auto()


_READING, _WAITING, _SENT, _ANSWERING, _ENDED = State
"""Looking up a member of an enum costs a tenth of a microsecond each time."""
_NO_BODY: Final = Framing.NONE
_CHUNKED: Final = Framing.CHUNKED
_COMPLETED: Final = Outcome.COMPLETED


class Client(Protocol):
    """Whoever sent a request and gets its answer: a connection, or a ticket's collector."""

    ip: bytes

    @property
    def keeps_alive(self) -> bool: ...
    def write(self, data: bytes) -> None: ...
    def direct_write(self) -> Callable[[bytes], None]: ...
    def comment_every(self, interval_s: float) -> None: ...
    def read_on(self) -> None: ...
    def hold_body(self, held: bool) -> None: ...
    def end_exchange(self, *, close: bool) -> None: ...
    def break_off(self, *, hard: bool) -> None: ...


class Answering:
    """Before a client: one request, of which it hears."""

    __slots__ = (
        *("_arrived_s", "_attempt", "_decision", "_status", "_streams", "_waited_s", "admission"),
        *("client", "endpoint", "framing", "head", "head_out", "name", "proxy", "state"),
    )

    def __init__(self, proxy: "Proxy", client: Client, head: RequestHead) -> None:
        self.proxy = proxy
        self.client = client
        self.head = head
        self.state = _READING
        self.name = proxy.ids.name(head.fields.get(b"x-request-id"))
        self._arrived_s = time.monotonic()
        self.endpoint: Endpoint | None = None
        """None: the path is not known (yet)."""
        self.admission: Admission | None = None
        """None: not offered (yet); an unmetered request never is."""
        self._decision = b""
        self._waited_s = 0.0
        self._attempt: Attempt | None = None
        """None: it is not at the engine, nor on its way there."""
        self._status = 0
        self.head_out = False
        """A response head has gone to the client; `framing` and `_streams` are what it said."""
        self._streams = False
        self.framing = _NO_BODY

    @property
    def awaits_answer(self) -> bool:
        """Nothing of an answer's body has come yet."""
        began = self._attempt is not None and self._attempt.began
        return self.state is not _ENDED and not began

    @property
    def _is_committed(self) -> bool:
        """A response head is out that only this attempt's body fits."""
        return self.head_out and not (self._streams and self.framing is _CHUNKED)

    def keep_waiting(self) -> None:
        """A comment to a stream that waits; the first one commits us to a 200."""
        if self._is_committed:
            return
        if not self.head_out:
            head = ResponseHead(status=200, reason=b"OK")
            head.passed = [
                b"Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
            ]
            self._status = 200
            self._streams = self.head_out = True
            self.framing = Framing.CHUNKED
            self.client.write(
                encode_client_head(head, self.our_lines(), framing=Framing.CHUNKED, close=False)
            )
        self.client.write(_COMMENT)

    # For the ticket desk, which answers some requests itself.

    def hand_over(self) -> None:
        """Somebody else will answer it, later."""
        self.proxy.unmetered += 1
        self.state = _SENT

    def answer_whole(self, status: int, head: bytes, body: bytes) -> None:
        """The whole answer. `head`: status line and header lines, without the length."""
        if self.state is _ENDED:
            return
        client = self.client
        self._status = status
        close = not client.keeps_alive
        length = b"Content-Length: %d\r\n" % len(body)
        end = b"Connection: close\r\n\r\n" if close else b"\r\n"
        client.write(head + length + end + body)
        self._finish(_COMPLETED, usage=None)
        client.end_exchange(close=close)

    def refuse(self, outcome: Outcome, message: str, *, retry_after_s: float | None = None) -> None:
        if self.state is not _ENDED:
            self._refuse(outcome, message, retry_after_s=retry_after_s)

    # Answers of our own.

    def _refuse_path(self, refused: Refused) -> None:
        head = self.head
        if refused.status == 405:
            allowed = ", ".join(refused.allowed_methods)
            self._refuse(
                Outcome.INVALID_REQUEST,
                f"{head.path} takes {allowed}.",
                status=405,
                headers=(b"Allow: %b\r\n" % allowed.encode("ascii"),),
            )
        else:
            self._refuse(Outcome.NOT_FOUND, "There is no such path here.")

    def _refuse(
        self,
        outcome: Outcome,
        message: str,
        *,
        status: int | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        headers: tuple[bytes, ...] = (),
    ) -> None:
        """Answer what was never offered."""
        self._write_error(
            make_error(
                outcome,
                message,
                dialect=self._error_dialect,
                status=status,
                param=param,
                retry_after_s=retry_after_s,
                headers=headers,
            )
        )

    def _answer_error(
        self, outcome: Outcome, message: str, *, retry_after_s: float | None = None
    ) -> None:
        """Answer what was offered; the scheduler is told by the caller, or knows."""
        self._refuse(outcome, message, retry_after_s=retry_after_s)

    def _write_error(self, error: ErrorAnswer) -> None:
        client = self.client
        close = False
        if self.head_out:
            event = error.encode_event()
            client.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event))
        else:
            self._status = error.status
            close = not client.keeps_alive
            with_body = self.head.method != "HEAD"
            client.write(error.encode(extra=self.our_lines(), close=close, with_body=with_body))
        self._finish(error.outcome, usage=None)
        client.end_exchange(close=close)

    def our_lines(self) -> list[bytes]:
        """Header lines of our own, for every answer."""
        admission = self.admission
        if admission is None:
            return [b"X-Request-Id: %b\r\n" % self.name]
        request = admission.request
        lines = [
            b"X-Request-Id: %b\r\n%bX-Giveway-Queue-Ms: %d\r\nX-Giveway-Decision: %b\r\n"
            % (
                self.name,
                self.proxy.identity_lines(admission.class_name, admission.tenant),
                self._waited_s * 1000,
                self._decision or b"queued",
            )
        ]
        quota = self.proxy.admitter.quota(request.rank, request.tenant)
        if quota is not None:
            lines.append(quota_lines(quota))
        return lines

    @property
    def _error_dialect(self) -> ErrorDialect:
        return ErrorDialect.OPENAI if self.endpoint is None else self.endpoint.error_dialect

    # The end.

    def _finish(self, outcome: Outcome, *, usage: Usage | None) -> None:
        """The one place where an exchange ends."""
        state = self.state
        assert state is not _ENDED
        proxy, admission = self.proxy, self.admission
        self.state = _ENDED
        attempt, self._attempt = self._attempt, None  # or they would wait for the collector
        if attempt is not None:
            attempt.release()
        duration_s = time.monotonic() - self._arrived_s
        if admission is not None:
            proxy.metrics.ended(
                admission.class_name,
                admission.tenant,
                outcome,
                duration_s=duration_s,
                usage=usage,
            )
        elif state is _SENT or state is _ANSWERING:
            proxy.unmetered -= 1
        else:
            proxy.metrics.refused_early(outcome)
        if proxy.settings.access_log:
            self._log(outcome, duration_s)
        if proxy.emptied is not None:
            proxy.request_ended()

    def _log(self, outcome: Outcome, duration_s: float) -> None:
        admission = self.admission
        log_event(
            _logger,
            logging.INFO,
            "request",
            request=self.name.decode("ascii"),
            method=self.head.method,
            path=TICKETS_PREFIX if self.endpoint is TICKET_ENDPOINT else self.head.path,
            status=self._status,
            outcome=outcome.value,
            class_name=None if admission is None else admission.class_name,
            tenant=None if admission is None else admission.tenant,
            queue_ms=round(self._waited_s * 1000, 1),
            duration_ms=round(duration_s * 1000, 1),
        )
