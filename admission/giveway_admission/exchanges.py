"""What becomes of one request, from its head to the last byte of its answer?

An `Exchange` is one request and its answer. The client's connection feeds it the request, the
admitter tells it when its turn is, an `Attempt` takes it to the engine. While it lives it alone
writes to the client, and it ends exactly once.

    READING -> WAITING -> SENT -> ANSWERING -> ENDED
                  ^---------'         the engine gave nothing: it waits again

What always holds
- A metered request that was offered ends with exactly one `finish` or `cancel` of the admitter, or
  by a decision of the scheduler (reject, evict, expire).
- Once a byte of the answer's body has gone to the client nothing is tried again, and an answer that
  breaks off is broken off: no end is invented.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol

from giveway_scheduler import Dispatch, DispatchReason, Evict, Expire, Reject, Usage

from giveway_admission.answers import ErrorAnswer, make_error
from giveway_admission.attempts import Attempt
from giveway_admission.endpoints import (
    BodyKind,
    Endpoint,
    ErrorDialect,
    PriorityBy,
    Refused,
    find_endpoint,
)
from giveway_admission.engine_connections import EngineFault
from giveway_admission.logs import log_event
from giveway_admission.outcomes import STATUS, Outcome
from giveway_admission.quota_headers import quota_lines
from giveway_admission.refusals import (
    DRAINING_MESSAGE,
    DRAINING_RETRY_S,
    UNAVAILABLE_RETRY_S,
    explain_eviction,
    explain_expiry,
    explain_fault,
    explain_rejection,
)
from giveway_admission.request_heads import RequestHead
from giveway_admission.request_reading import (
    InvalidRequestError,
    read_request,
    with_priority,
    with_usage_asked,
)
from giveway_admission.response_heads import Framing, ResponseHead, encode_client_head
from giveway_admission.runtime_policies import Admission, Refusal
from giveway_admission.tickets import TICKET_ENDPOINT, TICKETS_PREFIX, find_ticket_endpoint

if TYPE_CHECKING:
    from giveway_admission.proxying import Proxy

_logger = logging.getLogger(__name__)

_HEAD_BYTES_HELD = 2048
"""What a waiting request holds beside its body, roughly: head, objects, buffers."""
_LOSSES_BORNE = 2
"""A request whose engine connection broke this often before an answer is not sent again: it may be
the one that breaks the engine."""

_DECISIONS: Final = {
    DispatchReason.IMMEDIATE: b"immediate",
    DispatchReason.QUEUED: b"queued",
    DispatchReason.BOOSTED: b"boosted",
    DispatchReason.LIFTED: b"boosted",
}
_OBSERVED: Final = b"observed"
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


class Exchange:
    """One request and its answer."""

    __slots__ = (
        *("_arrived_s", "_attempt", "_body", "_body_begun", "_decision", "_losses", "_status"),
        *("_streams", "_waited_s", "_whole", "admission", "attempts", "client", "endpoint"),
        *("framing", "head", "head_out", "hides_usage", "name", "on_left", "priority", "proxy"),
        "state",
    )

    known_tenant: str | None = None
    """Whose request it is. None: its headers tell."""

    def __init__(self, proxy: "Proxy", client: Client, head: RequestHead) -> None:
        self.proxy = proxy
        self.client = client
        self.head = head
        self.state = _READING
        self.name = proxy.ids.name(head.fields.get(b"x-request-id"))
        self._arrived_s = time.monotonic()
        self.endpoint: Endpoint | None = None
        """None: the path is not known (yet)."""
        self._body = b""
        self._whole = False
        self._body_begun = False
        """The engine got some of a body that can't be sent again."""
        self.hides_usage = False
        """The engine is asked for usage that the client did not ask for."""

        self.admission: Admission | None = None
        """None: not offered (yet); an unmetered request never is."""
        self._decision = b""
        self._waited_s = 0.0
        self.priority: int | None = None
        """What the engine is told. None: nothing."""

        self._attempt: Attempt | None = None
        """None: it is not at the engine, nor on its way there."""
        self.attempts = 0
        self._losses = 0

        self._status = 0
        self.head_out = False
        """A response head has gone to the client; `framing` and `_streams` are what it said."""
        self._streams = False
        self.framing = Framing.NONE
        self.on_left: Callable[[], None] | None = None
        """Called when the client has left. None: nobody wants to know."""

    # From the client's connection.

    def begin(self) -> bool:
        """Judge the head. False: it was answered already, and its body is not wanted."""
        head, proxy = self.head, self.proxy
        found = find_endpoint(head.method, head.path)
        if isinstance(found, Refused) and proxy.tickets is not None:
            found = find_ticket_endpoint(head.method, head.path) or found
        if isinstance(found, Refused):
            self._refuse_path(found)
            return False
        self.endpoint = found
        if proxy.draining:
            self._refuse(Outcome.DRAINING, DRAINING_MESSAGE, retry_after_s=DRAINING_RETRY_S)
            return False
        if (head.content_length or 0) > proxy.settings.maximum_body_bytes:
            self.body_too_large()
            return False
        return True

    @property
    def wants_whole_body(self) -> bool:
        """The body is changed at the dispatch, so that all of it has to be at hand."""
        return self.endpoint is not None and self.endpoint.priority_by is PriorityBy.BODY

    def body_arrived(self, body: bytes, *, whole: bool) -> None:
        """The body, or the first part of a large one; the rest of that stays unread for now."""
        assert self.endpoint is not None
        self._body = body
        self._whole = whole
        if self.proxy.draining:
            self._refuse(Outcome.DRAINING, DRAINING_MESSAGE, retry_after_s=DRAINING_RETRY_S)
        elif self.endpoint.metered:
            self._admit(self.endpoint)
        elif self.endpoint is TICKET_ENDPOINT and self.proxy.tickets is not None:
            self.proxy.tickets.answer(self)
        else:
            self.proxy.unmetered += 1
            self._send()

    def more_body(self, data: bytes) -> None:
        """More of a large body, in answer to `ClientConnection.read_on`."""
        if self._attempt is not None:
            chunked = self.head.chunked
            self._attempt.write_body(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)

    def body_ended(self) -> None:
        """The large body is complete."""
        if self._attempt is not None and self.head.chunked:
            self._attempt.write_body(b"0\r\n\r\n")

    def body_too_large(self) -> None:
        limit = self.proxy.settings.maximum_body_bytes
        message = f"The request body is larger than the {limit} bytes that are taken here."
        self._give_up(Outcome.REQUEST_TOO_LARGE, message)

    def body_malformed(self) -> None:
        self._give_up(Outcome.INVALID_REQUEST, "The request body is not valid HTTP.")

    def body_too_slow(self) -> None:
        message = "The request body came too slowly."
        self._give_up(Outcome.INVALID_REQUEST, message, status=408)

    def client_left(self) -> None:
        """The client's connection has ended."""
        if self.state is _ENDED:
            return
        admission = self.admission
        usage = self._usage_so_far()
        self._leave_engine()
        self._finish(Outcome.CLIENT_LEFT, usage=usage)
        if admission is not None:
            self.proxy.admitter.cancel(admission.request.key, usage=usage)
        if self.on_left is not None:
            self.on_left()

    def client_congested(self, congested: bool) -> None:
        """The client does not keep up with the answer, or does again."""
        if self._attempt is not None:
            self._attempt.hold_answer(congested)

    def drain(self) -> bool:
        """The proxy ends: who waits or still sends is sent away (True); who is being answered goes
        on."""
        admission = self.admission
        if self.state is _READING:
            self._refuse(Outcome.DRAINING, DRAINING_MESSAGE, retry_after_s=DRAINING_RETRY_S)
            return True
        if self.state is not _WAITING or admission is None:
            return False
        self._answer_error(Outcome.DRAINING, DRAINING_MESSAGE, retry_after_s=DRAINING_RETRY_S)
        self.proxy.admitter.cancel(admission.request.key, usage=None)
        return True

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

    @property
    def awaits_answer(self) -> bool:
        """Nothing of an answer's body has come yet."""
        began = self._attempt is not None and self._attempt.began
        return self.state is not _ENDED and not began

    # Admission.

    def _admit(self, endpoint: Endpoint) -> None:
        proxy, head = self.proxy, self.head
        try:
            facts = read_request(
                endpoint, self._body, complete=self._whole, content_length=head.content_length
            )
        except InvalidRequestError as error:
            self._refuse(Outcome.INVALID_REQUEST, error.message, param=error.param)
            return
        admission = proxy.policy.admit(
            endpoint,
            head.fields,
            facts,
            key=proxy.admitter.next_key(),
            name=self.name.decode("ascii"),
            size_bytes=len(self._body) + _HEAD_BYTES_HELD,
            tenant=self.known_tenant,
        )
        if isinstance(admission, Refusal):
            self._refuse(admission.outcome, admission.message, param=admission.param)
            return
        if (
            proxy.tickets is not None
            and self._whole
            and not facts.streams
            and endpoint.body is BodyKind.JSON
            and proxy.tickets.takes(self, admission, self._body)
        ):
            return
        if not self._whole:
            admission = replace(admission, request=replace(admission.request, repeatable=False))
            if facts.priority_in_body and endpoint.priority_by is PriorityBy.HEADER:
                self.priority = 0  # overrides whatever the unseen part of the body says
        elif facts.can_ask_usage or facts.priority_in_body:
            self._change_body(
                asks_usage=facts.can_ask_usage and proxy.asks_usage,
                drops_priority=facts.priority_in_body and not proxy.forwards_priority,
            )
        self.admission = admission
        proxy.metrics.arrived(admission.class_name)
        if admission.asked_class_unknown:
            proxy.metrics.asked_class_unknown()
        self.state = _WAITING
        proxy.admitter.offer(self, admission)
        if proxy.comments_s and facts.streams and not head.is_1_0 and self.awaits_answer:
            self.client.comment_every(proxy.comments_s)

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

    def _change_body(self, *, asks_usage: bool, drops_priority: bool) -> None:
        # What was read as JSON but can't be taken apart goes on as it is.
        with contextlib.suppress(InvalidRequestError):
            if asks_usage:
                self._body = with_usage_asked(self._body)
                self.hides_usage = True
            if drops_priority:
                self._body = with_priority(self._body, None)

    def dispatch(self, decision: Dispatch) -> None:
        """Its turn: it goes to the engine now, or as soon as a connection is open."""
        proxy = self.proxy
        if not self._decision:
            assert self.admission is not None
            proxy.metrics.queue_waited(self.admission.class_name, decision.waited_s)
        self._decision = _DECISIONS[decision.reason]
        self._waited_s = decision.waited_s
        if proxy.forwards_priority:
            self.priority = decision.priority
        self._send()

    def pass_observed(self) -> None:
        """It goes without asking; the scheduler only looks on."""
        self._decision = _OBSERVED
        self._send()

    def reject(self, decision: Reject) -> None:
        assert self.admission is not None
        outcome, message = explain_rejection(decision, class_name=self.admission.class_name)
        self._decision = b"rejected"
        self._answer_error(outcome, message, retry_after_s=decision.retry_after_s)

    def evict(self, decision: Evict) -> None:
        self._decision = b"displaced"
        self._waited_s = decision.waited_s
        message = explain_eviction(decision)
        self._answer_error(Outcome.EVICTED, message, retry_after_s=decision.retry_after_s)

    def expire(self, decision: Expire) -> None:
        self._decision = b"queued"
        self._waited_s = decision.waited_s
        outcome, message = explain_expiry(decision, engine_up=self.proxy.engine_up)
        hint_s = UNAVAILABLE_RETRY_S if outcome is Outcome.ENGINE_UNAVAILABLE else None
        self._answer_error(outcome, message, retry_after_s=hint_s)

    def take_back(self) -> None:
        admission = self.admission
        assert admission is not None
        goes_again = self.awaits_answer and not self._is_committed
        self._leave_engine()
        if goes_again:
            self.state = _WAITING
            return
        # The engine has said something already that the client can't be asked to forget.
        self._finish(Outcome.ENGINE_FAILED, usage=None)
        self.client.break_off(hard=True)
        self.proxy.admitter.cancel(admission.request.key, usage=None)

    def break_down(self) -> None:
        """A fault of ours: end it in whatever state it is, and give its seat back."""
        admission = self.admission
        if self.state is not _ENDED:
            self._leave_engine()
            self._finish(Outcome.ENGINE_FAILED, usage=None)
            self.client.break_off(hard=True)
        if admission is not None:
            self.proxy.admitter.cancel(admission.request.key, usage=None)

    # To and from the engine.

    def _send(self, *, fresh: bool = False) -> None:
        self.state = _SENT
        self.attempts += 1
        self._attempt = attempt = Attempt(self)
        self.proxy.pool.send(attempt, fresh=fresh)

    def take_body(self) -> tuple[bytes, int | None]:
        """The body, or its first part, as it goes to the engine, and its whole length (None: it
        goes in chunks). Of a large one the rest follows by `more_body`."""
        body = self._body
        if self._whole:
            return body, len(body)
        self._body_begun = True
        self._body = b""
        self.client.read_on()
        if self.head.chunked:
            return b"%x\r\n%b\r\n" % (len(body), body), None
        return body, self.head.content_length

    def answering(self, head: ResponseHead, framing: Framing) -> None:
        """The engine's answer has begun, and its head goes to the client now, or has already."""
        self.state = _ANSWERING
        self._status = head.status
        self._streams = head.is_event_stream
        self.framing = framing
        self.head_out = True

    def first_token(self, now_s: float) -> None:
        """The engine has prefilled the request."""
        admission = self.admission
        assert admission is not None
        if self._streams:
            self.proxy.metrics.first_token(admission.class_name, now_s - self._arrived_s)
        self.proxy.admitter.first_token(admission.request.key)

    def answer_ended(self, *, failed: bool) -> None:
        """All of the engine's answer has gone to the client. `failed`: it says that it failed."""
        admission, status = self.admission, self._status
        usage = self._usage_so_far() if status < 400 else None
        if status >= 500 or failed:
            outcome = Outcome.ENGINE_FAILED
        elif status >= 300:
            outcome = Outcome.ENGINE_REFUSED
        else:
            outcome = _COMPLETED
        self._finish(outcome, usage=usage)
        self.client.end_exchange(close=self.framing is Framing.CLOSE)
        if admission is not None:
            self.proxy.admitter.finish(admission.request.key, usage=usage)

    def attempt_failed(self, fault: EngineFault) -> None:
        """There will be no (more) answer."""
        proxy, admission = self.proxy, self.admission
        repeatable = not self._body_begun and self.awaits_answer and not self._is_committed
        if fault is EngineFault.STALE and repeatable:
            self._leave_engine()
            self._send(fresh=True)
            return
        answered = self._attempt is not None and self._attempt.head is not None
        if fault is EngineFault.UNREACHABLE or (fault is EngineFault.LOST and not answered):
            proxy.engine_suspected()  # one stream that breaks says nothing about the others
        if fault is EngineFault.LOST:
            self._losses += 1
        if (
            repeatable
            and fault is not EngineFault.SILENT
            and admission is not None
            and self._losses < _LOSSES_BORNE
            and not proxy.draining
            and self._decision is not _OBSERVED
        ):
            self._leave_engine()
            self.state = _WAITING
            proxy.admitter.requeue(admission.request.key)
            return
        self._break_off(fault)

    @property
    def _is_committed(self) -> bool:
        """A response head is out that only this attempt's body fits."""
        return self.head_out and not (self._streams and self.framing is Framing.CHUNKED)

    def _break_off(self, fault: EngineFault) -> None:
        admission = self.admission
        outcome, message = explain_fault(fault)
        usage = None
        if not self.head_out or (self.awaits_answer and not self._is_committed):
            hint_s = UNAVAILABLE_RETRY_S if STATUS[outcome] == 503 else None
            self._answer_error(outcome, message, retry_after_s=hint_s)
        else:
            usage = self._usage_so_far() if self._status < 400 else None
            self._finish(outcome, usage=usage)
            self.client.break_off(hard=self.framing is Framing.CLOSE)
        log_event(
            _logger,
            logging.WARNING,
            "engine did not finish an answer",
            fault=fault.name.lower(),
            request=self.name.decode("ascii"),
        )
        if admission is not None:
            self.proxy.admitter.finish(admission.request.key, usage=usage)

    def _leave_engine(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.leave()

    def _usage_so_far(self) -> Usage | None:
        """What the engine has done for it. None: nothing, as far as is known."""
        if self.admission is None or self._attempt is None:
            return None
        return self._attempt.usage(prompt_tokens=self.admission.request.prompt_tokens)

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

    def _give_up(self, outcome: Outcome, message: str, *, status: int | None = None) -> None:
        """The request's own fault, found while its body came."""
        admission = self.admission
        if self.state is _ENDED:
            return
        self._leave_engine()
        if self.head_out:
            self._finish(outcome, usage=None)
            self.client.break_off(hard=True)
        else:
            self._refuse(outcome, message, status=status)
        if admission is not None:
            self.proxy.admitter.cancel(admission.request.key, usage=None)

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
        lines = [b"X-Request-Id: %b\r\n" % self.name]
        admission = self.admission
        if admission is not None:
            lines.append(self.proxy.identity_lines(admission.class_name, admission.tenant))
            lines.append(
                b"X-Giveway-Queue-Ms: %d\r\nX-Giveway-Decision: %b\r\n"
                % (self._waited_s * 1000, self._decision or b"queued")
            )
            request = admission.request
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
        if self._attempt is not None:
            self._attempt.release()
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
