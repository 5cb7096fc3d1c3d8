"""What becomes of one request, from its head to the last byte of its answer?

An `Exchange` is one request and its answer. The client's connection feeds it the request, the
admitter tells it when its turn is, the engine's connection feeds it the answer. While it lives it
alone writes to the client, and it ends exactly once.

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
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from giveway_scheduler import Dispatch, DispatchReason, Evict, Expire, Reject, Usage

from giveway_admission.answer_reading import AnswerReader
from giveway_admission.answers import ErrorAnswer, make_error
from giveway_admission.endpoints import Endpoint, ErrorDialect, PriorityBy, Refused, find_endpoint
from giveway_admission.engine_connections import EngineConnection, EngineFault
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
from giveway_admission.relaying import Mode, Relay, choose_mode
from giveway_admission.request_heads import RequestHead, encode_engine_head
from giveway_admission.request_reading import (
    InvalidRequestError,
    read_request,
    with_priority,
    with_usage_asked,
)
from giveway_admission.response_heads import Framing, ResponseHead, encode_client_head
from giveway_admission.runtime_policies import Admission, Refusal

if TYPE_CHECKING:
    from giveway_admission.client_connections import ClientConnection
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


class State(Enum):
    """How far an exchange is."""

    READING = auto()
    WAITING = auto()
    SENT = auto()
    ANSWERING = auto()
    ENDED = auto()


class Exchange:
    """One request and its answer."""

    __slots__ = (
        *("_admission", "_arrived_s", "_at_engine", "_body", "_body_begun", "_client", "_decision"),
        *("_endpoint", "_engine", "_events", "_framing", "_head", "_head_out", "_hides_usage"),
        *("_last_token_s", "_losses", "_name", "_outcome", "_priority", "_proxy", "_reader"),
        *("_relay", "_status", "_streams", "_waited_s", "_whole", "state"),
    )

    def __init__(self, proxy: "Proxy", client: "ClientConnection", head: RequestHead) -> None:
        self._proxy = proxy
        self._client = client
        self._head = head
        self.state = State.READING
        self._arrived_s = time.monotonic()
        self._name = proxy.ids.name(head.fields.get(b"x-request-id"))
        self._endpoint: Endpoint | None = None
        self._body = b""
        self._whole = False
        self._body_begun = False
        """The engine got some of a body that can't be sent again."""
        self._hides_usage = False

        self._admission: Admission | None = None
        """None: not offered (yet); an unmetered request never is."""
        self._decision = b""
        self._waited_s = 0.0
        self._priority: int | None = None

        self._at_engine: bytes | None = None
        self._engine: EngineConnection | None = None
        self._losses = 0

        self._status = 0
        self._head_out = False
        """A response head has gone to the client."""
        self._streams = False
        self._framing = Framing.NONE
        self._reader: AnswerReader | None = None
        self._relay: Relay | None = None
        self._events = 0
        self._last_token_s = 0.0

    # From the client's connection.

    def begin(self) -> bool:
        """Judge the head. False: it was answered already, and its body is not wanted."""
        head, proxy = self._head, self._proxy
        found = find_endpoint(head.method, head.path)
        if isinstance(found, Refused):
            self._refuse_path(found)
            return False
        self._endpoint = found
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
        return self._endpoint is not None and self._endpoint.priority_by is PriorityBy.BODY

    def body_arrived(self, body: bytes, *, whole: bool) -> None:
        """The body, or the first part of a large one; the rest of that stays unread for now."""
        assert self._endpoint is not None
        self._body = body
        self._whole = whole
        if self._proxy.draining:
            self._refuse(Outcome.DRAINING, DRAINING_MESSAGE, retry_after_s=DRAINING_RETRY_S)
        elif self._endpoint.metered:
            self._admit(self._endpoint)
        else:
            self.state = State.SENT
            self._proxy.unmetered += 1
            self._proxy.pool.send(self)

    def more_body(self, data: bytes) -> None:
        """More of a large body, in answer to `ClientConnection.read_on`."""
        if self._engine is not None:
            chunked = self._head.chunked
            self._engine.write_body(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)

    def body_ended(self) -> None:
        """The large body is complete."""
        if self._engine is not None and self._head.chunked:
            self._engine.write_body(b"0\r\n\r\n")

    def body_too_large(self) -> None:
        limit = self._proxy.settings.maximum_body_bytes
        message = f"The request body is larger than the {limit} bytes that are taken here."
        self._give_up(Outcome.REQUEST_TOO_LARGE, message)

    def body_malformed(self) -> None:
        self._give_up(Outcome.INVALID_REQUEST, "The request body is not valid HTTP.")

    def body_too_slow(self) -> None:
        message = "The request body came too slowly."
        self._give_up(Outcome.INVALID_REQUEST, message, status=408)

    def client_left(self) -> None:
        """The client's connection has ended."""
        state = self.state
        if state is State.ENDED:
            return
        admission = self._admission
        usage = None if state in (State.READING, State.WAITING) else self._usage_so_far()
        self._leave_engine()
        self._finish(Outcome.CLIENT_LEFT, usage=usage)
        if admission is not None:
            self._proxy.admitter.cancel(admission.request.key, usage=usage)

    def client_congested(self, congested: bool) -> None:
        """The client does not keep up with the answer, or does again."""
        if self._engine is not None:
            if congested:
                self._engine.pause()
            else:
                self._engine.resume()

    def drain(self) -> bool:
        """The proxy ends: who waits is sent away (True); who is being answered goes on."""
        admission = self._admission
        if self.state is not State.WAITING or admission is None:
            return False
        self._answer_error(Outcome.DRAINING, DRAINING_MESSAGE, retry_after_s=DRAINING_RETRY_S)
        self._proxy.admitter.cancel(admission.request.key, usage=None)
        return True

    def keep_waiting(self) -> None:
        """A comment to a stream that waits; the first one commits us to a 200."""
        if not self._head_out:
            self._head_out = self._streams = True
            self._status = 200
            head = ResponseHead(status=200, reason=b"OK", framing=Framing.CHUNKED)
            head.passed = [
                b"Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
            ]
            self._framing = Framing.CHUNKED
            self._client.write(
                encode_client_head(head, self._our_lines(), framing=Framing.CHUNKED, close=False)
            )
        self._client.write(b"e\r\n: keep-alive\n\n\r\n")

    @property
    def awaits_answer(self) -> bool:
        """Nothing of an answer's body has come yet."""
        began = self._relay is not None and self._relay.began
        return self.state is not State.ENDED and not began

    # Admission.

    def _admit(self, endpoint: Endpoint) -> None:
        proxy, head = self._proxy, self._head
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
            name=self._name.decode("ascii"),
            size_bytes=len(self._body) + _HEAD_BYTES_HELD,
        )
        if isinstance(admission, Refusal):
            self._refuse(admission.outcome, admission.message, param=admission.param)
            return
        if self._whole:
            with contextlib.suppress(InvalidRequestError):
                if facts.can_ask_usage and proxy.asks_usage:
                    self._body = with_usage_asked(self._body)
                    self._hides_usage = True
                if facts.priority_in_body and not proxy.forwards_priority:
                    self._body = with_priority(self._body, None)
        else:
            admission = replace(admission, request=replace(admission.request, repeatable=False))
            if facts.priority_in_body and endpoint.priority_by is PriorityBy.HEADER:
                self._priority = 0  # overrides whatever the unseen part of the body says
        self._admission = admission
        proxy.metrics.arrived(admission.class_name)
        if admission.asked_class_unknown:
            proxy.metrics.asked_class_unknown()
        self.state = State.WAITING
        proxy.admitter.offer(self, admission)
        if proxy.comments_s and facts.streams and not head.is_1_0 and self.awaits_answer:
            self._client.comment_every(proxy.comments_s)

    def dispatch(self, decision: Dispatch) -> None:
        """Its turn: it goes to the engine now, or as soon as a connection is open."""
        if not self._decision:
            assert self._admission is not None
            self._proxy.metrics.queue_waited(self._admission.class_name, decision.waited_s)
        self._decision = _DECISIONS[decision.reason]
        self._waited_s = decision.waited_s
        if self._proxy.forwards_priority:
            self._priority = decision.priority
        self.state = State.SENT
        self._proxy.pool.send(self)

    def pass_observed(self) -> None:
        """It goes without asking; the scheduler only looks on."""
        self._decision = b"observed"
        self.state = State.SENT
        self._proxy.pool.send(self)

    def reject(self, decision: Reject) -> None:
        assert self._admission is not None
        outcome, message = explain_rejection(decision, class_name=self._admission.class_name)
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
        outcome, message = explain_expiry(decision, engine_up=self._proxy.engine_up)
        hint_s = UNAVAILABLE_RETRY_S if outcome is Outcome.ENGINE_UNAVAILABLE else None
        self._answer_error(outcome, message, retry_after_s=hint_s)

    def take_back(self) -> None:
        admission = self._admission
        assert admission is not None
        self._leave_engine()
        if self._is_committed or not self.awaits_answer:
            # The engine has said something already that the client can't be asked to forget.
            self._finish(Outcome.ENGINE_FAILED, usage=None)
            self._client.break_off(hard=True)
            self._proxy.admitter.cancel(admission.request.key, usage=None)
            return
        self._relay = self._reader = None
        self.state = State.WAITING

    def break_down(self) -> None:
        """A fault of ours: end it in whatever state it is, and give its seat back."""
        admission = self._admission
        if self.state is not State.ENDED:
            self._leave_engine()
            self._finish(Outcome.ENGINE_FAILED, usage=None)
            self._client.break_off(hard=True)
        if admission is not None:
            self._proxy.admitter.cancel(admission.request.key, usage=None)

    # To and from the engine.

    def begin_sending(self, connection: EngineConnection) -> tuple[bytes, bytes]:
        proxy, head, endpoint = self._proxy, self._head, self._endpoint
        assert endpoint is not None
        self._engine = connection
        again = self._at_engine is not None
        if self._at_engine is not None:
            proxy.ids.release(self._at_engine)
        self._at_engine = proxy.ids.claim(self._name, again=again)
        body = self._body
        if self.wants_whole_body and proxy.forwards_priority:
            # What was read as JSON but can't be taken apart goes on as it is.
            with contextlib.suppress(InvalidRequestError):
                body = with_priority(body, self._priority)
        by_header = endpoint.priority_by is PriorityBy.HEADER
        length: int | None = len(body)
        if not self._whole:
            length = head.content_length
            if head.chunked:
                body = b"%x\r\n%b\r\n" % (len(body), body)
            self._body_begun = True
            self._body = b""
            self._client.read_on()
        engine_head = encode_engine_head(
            head,
            proxy.address,
            client_ip=self._client.ip,
            request_id=self._at_engine,
            priority=self._priority if by_header else None,
            body_bytes=length,
        )
        return engine_head, body

    @property
    def is_head_request(self) -> bool:
        return self._head.method == "HEAD"

    def engine_congested(self, congested: bool) -> None:
        self._client.hold_body(congested)

    def answer_head(self, head: ResponseHead) -> None:
        admission = self._admission
        self.state = State.ANSWERING
        streams = head.is_event_stream
        readable = 200 <= head.status < 300 and not head.is_encoded
        hides = self._hides_usage and streams and readable
        is_1_0 = self._head.is_1_0
        if self._head_out:
            if head.status != 200 or not streams:
                mode = Mode.ERROR
            else:
                mode = choose_mode(head.framing, is_1_0=is_1_0, hides_usage=hides, committed=True)
        else:
            mode = choose_mode(head.framing, is_1_0=is_1_0, hides_usage=hides, committed=False)
        if admission is not None:
            assert self._endpoint is not None
            self._reader = AnswerReader(
                self._endpoint, streams=streams, status=head.status, encoded=head.is_encoded
            )
        self._relay = Relay(self._client, mode=mode, reader=self._reader, hides_usage=hides)
        self._status = head.status
        self._streams = streams
        if self._head_out:
            return
        framing = head.framing
        if mode is Mode.FRAMED:
            framing = Framing.CHUNKED
        elif mode is Mode.PLAIN:
            framing = Framing.CLOSE
        self._framing = framing
        close = framing is Framing.CLOSE or not self._client.keeps_alive
        self._head_out = True
        self._client.write(
            encode_client_head(head, self._our_lines(), framing=framing, close=close)
        )

    def answer_body(self, data: bytes, body: bytes, now_s: float) -> None:
        relay = self._relay
        assert relay is not None
        relay.pass_on(data, body)
        reader = self._reader
        if reader is not None and reader.events != self._events:
            self._count_tokens(reader.events, now_s)

    def _count_tokens(self, events: int, now_s: float) -> None:
        admission, metrics = self._admission, self._proxy.metrics
        assert admission is not None
        first = self._events == 0
        self._events = events
        if not first:
            metrics.tokens_gap(admission.class_name, now_s - self._last_token_s)
            self._last_token_s = now_s
            return
        self._last_token_s = now_s
        if self._streams:
            metrics.first_token(admission.class_name, now_s - self._arrived_s)
        self._proxy.admitter.first_token(admission.request.key)

    def answer_end(self) -> None:
        relay, admission = self._relay, self._admission
        assert relay is not None
        self._engine = None
        relay.end()
        outcome = self._outcome_of_answer()
        usage = self._usage_so_far() if self._status < 400 else None
        self._finish(outcome, usage=usage)
        self._client.end_exchange(close=self._framing is Framing.CLOSE)
        if admission is not None:
            self._proxy.admitter.finish(admission.request.key, usage=usage)

    def engine_failed(self, fault: EngineFault) -> None:
        self._engine = None
        proxy, admission = self._proxy, self._admission
        repeatable = not self._body_begun and self.awaits_answer and not self._is_committed
        if fault is EngineFault.STALE and repeatable:
            proxy.pool.send(self, fresh=True)
            return
        if fault in (EngineFault.UNREACHABLE, EngineFault.LOST):
            proxy.engine_suspected()
        if fault is EngineFault.LOST:
            self._losses += 1
        if (
            repeatable
            and fault is not EngineFault.SILENT
            and admission is not None
            and self._losses < _LOSSES_BORNE
            and not proxy.draining
            and self._decision != b"observed"
        ):
            self._relay = self._reader = None
            self.state = State.WAITING
            proxy.admitter.requeue(admission.request.key)
            return
        self._break_off(fault)

    @property
    def _is_committed(self) -> bool:
        """A response head is out that only this attempt's body fits."""
        return self._head_out and not (self._streams and self._framing is Framing.CHUNKED)

    def _break_off(self, fault: EngineFault) -> None:
        admission = self._admission
        outcome, message = explain_fault(fault)
        usage = self._usage_so_far() if self._status and self._status < 400 else None
        if not self._head_out or (self._streams and self.awaits_answer and not self._is_committed):
            hint_s = UNAVAILABLE_RETRY_S if STATUS[outcome] == 503 else None
            usage = None
            self._answer_error(outcome, message, retry_after_s=hint_s)
        else:
            self._finish(outcome, usage=usage)
            self._client.break_off(hard=self._framing is Framing.CLOSE)
        log_event(
            _logger,
            logging.WARNING,
            "engine did not finish an answer",
            fault=fault.name.lower(),
            request=self._name.decode("ascii"),
        )
        if admission is not None:
            self._proxy.admitter.finish(admission.request.key, usage=usage)

    def _leave_engine(self) -> None:
        self._proxy.pool.give_up(self)
        if self._engine is not None:
            self._engine.abort()
            self._engine = None

    # Ends.

    def _outcome_of_answer(self) -> Outcome:
        if self._status >= 500:
            return Outcome.ENGINE_FAILED
        if self._status >= 300:
            return Outcome.ENGINE_REFUSED
        if self._reader is not None and self._reader.failed:
            return Outcome.ENGINE_FAILED
        return Outcome.COMPLETED

    def _usage_so_far(self) -> Usage | None:
        """What the engine has done for it. None: nothing, as far as is known."""
        admission = self._admission
        if admission is None or (self._engine is None and self._reader is None):
            return None
        prompt_tokens = admission.request.prompt_tokens
        if self._reader is None:
            return Usage(prompt_tokens=prompt_tokens)
        return self._reader.charge(prompt_tokens=prompt_tokens)

    def _refuse_path(self, refused: Refused) -> None:
        head = self._head
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
        admission, state = self._admission, self.state
        if state is State.ENDED:
            return
        self._leave_engine()
        error = make_error(outcome, message, dialect=self._error_dialect, status=status)
        if self._head_out:
            self._finish(outcome, usage=None)
            self._client.break_off(hard=True)
        else:
            self._write_error(error)
        if admission is not None:
            self._proxy.admitter.cancel(admission.request.key, usage=None)

    def _answer_error(
        self, outcome: Outcome, message: str, *, retry_after_s: float | None = None
    ) -> None:
        """Answer what was offered; the scheduler is told by the caller, or knows."""
        dialect = self._error_dialect
        self._write_error(
            make_error(outcome, message, dialect=dialect, retry_after_s=retry_after_s)
        )

    def _write_error(self, error: ErrorAnswer) -> None:
        client = self._client
        if self._head_out:
            event = error.encode_event()
            client.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event))
            close = False
        else:
            self._status = error.status
            close = not client.keeps_alive
            with_body = self._head.method != "HEAD"
            client.write(error.encode(extra=self._our_lines(), close=close, with_body=with_body))
        self._finish(error.outcome, usage=None)
        client.end_exchange(close=close)

    def _our_lines(self) -> list[bytes]:
        lines = [b"X-Request-Id: %b\r\n" % self._name]
        admission = self._admission
        if admission is not None:
            lines.append(self._proxy.identity_lines(admission.class_name, admission.tenant))
            lines.append(
                b"X-Giveway-Queue-Ms: %d\r\nX-Giveway-Decision: %b\r\n"
                % (self._waited_s * 1000, self._decision or b"queued")
            )
            request = admission.request
            quota = self._proxy.admitter.quota(request.rank, request.tenant)
            if quota is not None:
                lines.append(quota_lines(quota))
        return lines

    @property
    def _error_dialect(self) -> ErrorDialect:
        return ErrorDialect.OPENAI if self._endpoint is None else self._endpoint.error_dialect

    def _finish(self, outcome: Outcome, *, usage: Usage | None) -> None:
        """The one place where an exchange ends."""
        assert self.state is not State.ENDED
        proxy, admission = self._proxy, self._admission
        if self._at_engine is not None:
            proxy.ids.release(self._at_engine)
            self._at_engine = None
        unmetered = admission is None and self.state in (State.SENT, State.ANSWERING)
        self.state = State.ENDED
        duration_s = time.monotonic() - self._arrived_s
        if admission is not None:
            proxy.metrics.ended(
                admission.class_name,
                admission.tenant,
                outcome,
                duration_s=duration_s,
                usage=usage,
            )
        elif unmetered:
            proxy.unmetered -= 1
        else:
            proxy.metrics.refused_early(outcome)
        if proxy.settings.access_log:
            self._log(outcome, duration_s)
        proxy.request_ended()

    def _log(self, outcome: Outcome, duration_s: float) -> None:
        admission = self._admission
        log_event(
            _logger,
            logging.INFO,
            "request",
            request=self._name.decode("ascii"),
            method=self._head.method,
            path=self._head.path,
            status=self._status,
            outcome=outcome.value,
            class_name=None if admission is None else admission.class_name,
            tenant=None if admission is None else admission.tenant,
            queue_ms=round(self._waited_s * 1000, 1),
            duration_ms=round(duration_s * 1000, 1),
        )
