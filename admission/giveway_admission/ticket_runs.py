"""How does a ticket's request run, with nobody on the line?

As any other request: an `Exchange` like those of connections goes through admission, limits, queue
and engine, and is counted and charged there. Only its client is none: `TicketClient` collects the
answer in memory, up to a bound. Since no byte of it has left the process, an answer that breaks off
can be forgotten and made again, which a connection's can't.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from giveway_scheduler import Evict, Reject, Usage

from giveway_admission.answering import State
from giveway_admission.answers import ErrorAnswer
from giveway_admission.exchanges import Exchange
from giveway_admission.outcomes import Outcome
from giveway_admission.request_heads import RequestHead
from giveway_admission.response_heads import Framing
from giveway_admission.tickets import TicketAnswer, TicketRequest, split_answer

if TYPE_CHECKING:
    from giveway_admission.proxying import Proxy

_CONTROL_PREFIX = b"x-giveway-"
_LONGEST_PATIENCE_MS = 999_999_999


class TicketClient:
    """A `Client` that keeps what it gets."""

    def __init__(
        self, *, ip: bytes, maximum_bytes: int, ended: Callable[[], None], full: Callable[[], None]
    ) -> None:
        self.ip = ip
        self.keeps_alive = True
        self._maximum_bytes = maximum_bytes
        self._ended = ended
        self._full = full
        self._parts: list[bytes] = []
        self._bytes = 0

    @property
    def received(self) -> bytes:
        return b"".join(self._parts)

    def forget(self) -> None:
        """What came is not wanted: it will come again."""
        self._parts = []
        self._bytes = 0

    def write(self, data: bytes) -> None:
        before = self._bytes
        self._bytes += len(data)
        if self._bytes <= self._maximum_bytes:
            self._parts.append(data)
        elif before <= self._maximum_bytes:
            self._parts = []
            self._full()

    def direct_write(self) -> Callable[[bytes], None]:
        return self.write

    def end_exchange(self, *, close: bool) -> None:  # noqa: ARG002 - there is no connection
        self._ended()

    def break_off(self, *, hard: bool) -> None:  # noqa: ARG002
        self.forget()
        self._ended()

    # What never happens: the body is whole, and no answer is a stream.

    def comment_every(self, interval_s: float) -> None:
        pass

    def read_on(self) -> None:
        pass

    def hold_body(self, held: bool) -> None:
        pass


class TicketExchange(Exchange):
    """The request of a ticket and its answer."""

    __slots__ = (
        *("_before_sending", "_collector", "_turn", "is_refusal", "known_tenant", "outcome"),
        "retry_s",
    )

    def __init__(
        self,
        proxy: "Proxy",
        client: TicketClient,
        head: RequestHead,
        *,
        tenant: str,
        before_sending: Callable[[Callable[[], None]], None],
    ) -> None:
        """`before_sending` gets what sends it to the engine, and calls that when it may go."""
        super().__init__(proxy, client, head)
        self._collector = client
        self.known_tenant = tenant
        self._before_sending = before_sending
        self._turn = 0
        self.outcome: Outcome | None = None
        """None: it has not ended."""
        self.is_refusal = False
        """The answer is ours and not the engine's."""
        self.retry_s: float | None = None
        """The scheduler had no room; it may have some after this time. None: it had."""

    def reject(self, decision: Reject) -> None:
        self.retry_s = decision.retry_after_s
        super().reject(decision)

    def evict(self, decision: Evict) -> None:
        self.retry_s = decision.retry_after_s
        super().evict(decision)

    @property
    def awaits_answer(self) -> bool:
        """Nothing has left the process: what came is forgotten if it has to come again."""
        return self.state is not State.ENDED

    @property
    def _is_committed(self) -> bool:
        return False

    def _send(self, *, fresh: bool = False) -> None:
        self._forget_answer()
        self._turn += 1
        self.state = State.SENT
        self._before_sending(partial(self._send_now, self._turn, fresh=fresh))

    def _send_now(self, turn: int, *, fresh: bool) -> None:
        if self.state is State.SENT and self._turn == turn:
            super()._send(fresh=fresh)

    def _write_error(self, error: ErrorAnswer) -> None:
        self._forget_answer()
        self.is_refusal = True
        super()._write_error(error)

    def _forget_answer(self) -> None:
        self.head_out = False
        self.framing = Framing.NONE
        self._collector.forget()

    def _finish(self, outcome: Outcome, *, usage: Usage | None) -> None:
        self.outcome = outcome
        super()._finish(outcome, usage=usage)

    def answer_too_large(self, message: str) -> None:
        """The client can't keep the answer: the engine need not make the rest of it."""
        admission = self.admission
        if self.state is State.ENDED or admission is None:
            return
        usage = self._usage_so_far()
        self._leave_engine()
        self._answer_error(Outcome.ENGINE_FAILED, message)
        self.proxy.admitter.finish(admission.request.key, usage=usage)


class TicketRun:
    """A ticket's request on its way, from the offer to the end."""

    def __init__(
        self,
        proxy: "Proxy",
        request: TicketRequest,
        *,
        tenant: str,
        credentials: dict[bytes, bytes],
        client_ip: bytes,
        patience_s: float,
        maximum_answer_bytes: int,
        before_sending: Callable[[Callable[[], None]], None],
        ended: Callable[["TicketRun"], None],
    ) -> None:
        """`ended` is called from the event loop once everything has heard of the end."""
        self._proxy = proxy
        self._body = request.body
        self._too_large = f"The answer is larger than the {maximum_answer_bytes} bytes kept here."
        client = TicketClient(
            ip=client_ip,
            maximum_bytes=maximum_answer_bytes,
            ended=self._tell_later,
            full=self._give_up_later,
        )
        self._ended = ended
        self._client = client
        head = _make_head(request, credentials, patience_s=patience_s)
        self.exchange = TicketExchange(
            proxy, client, head, tenant=tenant, before_sending=before_sending
        )

    def offer(self) -> None:
        """Its fate may be decided before this returns."""
        body, self._body = self._body, b""
        if self.exchange.begin():
            self.exchange.body_arrived(body, whole=True)

    @property
    def was_interrupted(self) -> bool:
        """It ended because the proxy does: another process goes on with it."""
        exchange = self.exchange
        outcome = exchange.outcome
        return outcome is not None and (
            outcome is Outcome.DRAINING or (self._proxy.draining and exchange.is_refusal)
        )

    @property
    def was_refused(self) -> bool:
        """The scheduler had no room for it."""
        return self.exchange.retry_s is not None and not self.was_interrupted

    @property
    def is_running(self) -> bool:
        return self.exchange.state in (State.SENT, State.ANSWERING)

    @property
    def answer(self) -> TicketAnswer | None:
        """What came. None: nothing that could be an answer."""
        received = self._client.received
        return split_answer(received) if received else None

    def cancel(self) -> None:
        """Nobody wants it any more. `ended` is not called."""
        self.exchange.client_left()

    def _tell_later(self) -> None:
        self._proxy.loop.call_soon(self._ended, self)

    def _give_up_later(self) -> None:
        self._proxy.loop.call_soon(self.exchange.answer_too_large, self._too_large)


def _make_head(
    request: TicketRequest, credentials: dict[bytes, bytes], *, patience_s: float
) -> RequestHead:
    """HTTP/1.0, so that an answer in chunks is taken out of them."""
    patience_ms = min(max(1, int(patience_s * 1000)), _LONGEST_PATIENCE_MS)
    fields = {
        **request.fields,
        **credentials,
        b"x-giveway-timeout-ms": b"%d" % patience_ms,
    }
    passed: list[bytes] = []
    for name, value in request.fields.items():
        if name != b"x-request-id" and not name.startswith(_CONTROL_PREFIX):
            passed += (name, b": ", value, b"\r\n")
    return RequestHead(
        method="POST",
        path=request.path,
        target=request.path.encode("ascii"),
        fields=fields,
        passed=passed,
        content_length=len(request.body),
        chunked=False,
        is_1_0=True,
        keep_alive=False,
        expects_continue=False,
    )
