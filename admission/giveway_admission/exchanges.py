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
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from giveway_scheduler import Dispatch, DispatchReason, Evict, Expire, Reject, Usage

from giveway_admission.answering import Answering, Client, State
from giveway_admission.attempts import Attempt
from giveway_admission.body_tails import MemberAppender
from giveway_admission.endpoints import BodyKind, Endpoint, PriorityBy, Refused, find_endpoint
from giveway_admission.engine_connections import EngineFault
from giveway_admission.logs import log_event
from giveway_admission.outcomes import STATUS, Outcome
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
from giveway_admission.response_heads import Framing, ResponseHead
from giveway_admission.runtime_policies import Refusal
from giveway_admission.tickets import TICKET_ENDPOINT, find_ticket_endpoint

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
_READING, _WAITING, _SENT, _ANSWERING, _ENDED = State
_JSON: Final = BodyKind.JSON
_BY_BODY: Final = PriorityBy.BODY
_CLOSE: Final = Framing.CLOSE
_COMPLETED: Final = Outcome.COMPLETED


class Exchange(Answering):
    """One request and its answer."""

    __slots__ = (
        *("_appender", "_body", "_body_begun", "_losses", "_whole", "attempts", "hides_usage"),
        *("on_left", "priority"),
    )

    known_tenant: str | None = None
    """Whose request it is. None: its headers tell."""

    def __init__(self, proxy: "Proxy", client: Client, head: RequestHead) -> None:
        super().__init__(proxy, client, head)
        self._body = b""
        self._whole = False
        self._appender: MemberAppender | None = None
        """Puts our priority into a large body as it passes. None: nothing is put in."""
        self._body_begun = False
        """The engine got some of a body that can't be sent again."""
        self.hides_usage = False
        """The engine is asked for usage that the client did not ask for."""
        self.priority: int | None = None
        """What the engine is told. None: nothing."""
        self.attempts = 0
        self._losses = 0
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
        if self._appender is not None:
            data = self._appender.feed(data)
        if self._attempt is not None and data:
            chunked = self.head.chunked
            self._attempt.write_body(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)

    def body_ended(self) -> None:
        """The large body is complete."""
        if self._appender is not None:
            appender, self._appender = self._appender, None
            self.more_body(appender.end())
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

    # Admission.

    def _admit(self, endpoint: Endpoint) -> None:
        proxy, head = self.proxy, self.head
        policy = proxy.policy
        try:
            facts = read_request(
                endpoint,
                self._body,
                complete=self._whole,
                content_length=head.content_length,
                estimates=policy.estimates,
            )
        except InvalidRequestError as error:
            self._refuse(Outcome.INVALID_REQUEST, error.message, param=error.param)
            return
        standing = head.notes.standing
        if standing is None or standing.policy is not policy:
            found = policy.stand(head.fields, tenant=self.known_tenant)
            if isinstance(found, Refusal):
                self._refuse(found.outcome, found.message, param=found.param)
                return
            head.notes.standing = standing = found
        admission = policy.admit(
            standing,
            facts,
            key=proxy.admitter.next_key(),
            name=self.name.decode("ascii"),
            size_bytes=len(self._body) + _HEAD_BYTES_HELD,
        )
        if (
            proxy.tickets is not None
            and self._whole
            and not facts.streams
            and endpoint.body is _JSON
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
            proxy.metrics.asked_class_unknown(head.fields.get(b"x-giveway-class", b""))
        self.state = _WAITING
        proxy.admitter.offer(self, admission)
        if proxy.comments_s and facts.streams and not head.is_1_0 and self.awaits_answer:
            self.client.comment_every(proxy.comments_s)

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
        body, length = self._body, self.head.content_length
        in_body = self.endpoint is not None and self.endpoint.priority_by is _BY_BODY
        if self._whole:
            if in_body and self.proxy.forwards_priority:
                body = _prioritised(body, self.priority)
            return body, len(body)
        self._body_begun = True
        self._body = b""
        self.client.read_on()
        if in_body:  # ours comes last, and so overrides what the unseen part may say
            self._appender = MemberAppender(b'"priority":%d' % (self.priority or 0))
            body = self._appender.feed(body)
            length = None if length is None else length + self._appender.extra_bytes
        if self.head.chunked:
            return b"%x\r\n%b\r\n" % (len(body), body), None
        return body, length

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
        self.client.end_exchange(close=self.framing is _CLOSE)
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
            self.client.break_off(hard=self.framing is _CLOSE)
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


def _prioritised(body: bytes, priority: int | None) -> bytes:
    try:
        return with_priority(body, priority)
    except InvalidRequestError:  # read as JSON, yet can't be taken apart: it goes on as it is
        return body
