"""How does one request go to the engine once?

An `Attempt` is one way of a request to the engine and of its answer back. Mostly there is one for
each request; there are more if a connection from the pool turned out to be closed, if the engine
was away, or if the scheduler took the request back. What is learned on the way belongs to the
attempt; what the client has been told belongs to the exchange.
"""

from typing import TYPE_CHECKING

from giveway_scheduler import Usage

from giveway_admission.answer_reading import AnswerReader
from giveway_admission.endpoints import PriorityBy
from giveway_admission.engine_connections import EngineConnection, EngineFault
from giveway_admission.relaying import Mode, Relay, choose_mode
from giveway_admission.request_heads import encode_engine_head
from giveway_admission.response_heads import Framing, ResponseHead, encode_client_head

if TYPE_CHECKING:
    from giveway_admission.exchanges import Exchange

_BY_HEADER = PriorityBy.HEADER
_RAW, _FRAMED, _PLAIN, _ERROR = Mode
_CHUNKED = Framing.CHUNKED
_CLOSE = Framing.CLOSE
"""Looking up a member of an enum costs a tenth of a microsecond each time."""


class Attempt:
    """A `Receiver` of the engine's answer."""

    __slots__ = ("_connection", "_exchange", "_name", "_reader", "_relay", "head")

    def __init__(self, exchange: "Exchange") -> None:
        self._exchange = exchange
        self._connection: EngineConnection | None = None
        self._name = b""
        self._reader: AnswerReader | None = None
        self._relay: Relay | None = None
        self.head: ResponseHead | None = None
        """Of the engine's answer. None: none has come."""

    # The request's way.

    def begin_sending(self, connection: EngineConnection) -> tuple[bytes, bytes]:
        exchange = self._exchange
        proxy, head, endpoint = exchange.proxy, exchange.head, exchange.endpoint
        assert endpoint is not None
        self._connection = connection
        self._name = proxy.ids.claim(exchange.name, again=exchange.attempts > 1)
        body, length = exchange.take_body()
        engine_head = encode_engine_head(
            head,
            proxy.address,
            client_ip=exchange.client.ip,
            request_id=self._name,
            priority=exchange.priority if endpoint.priority_by is _BY_HEADER else None,
            body_bytes=length,
        )
        return engine_head, body

    def write_body(self, data: bytes) -> None:
        """More of a large body."""
        if self._connection is not None:
            self._connection.write_body(data)

    def engine_congested(self, congested: bool) -> None:
        self._exchange.client.hold_body(congested)

    # The answer's way.

    @property
    def is_head_request(self) -> bool:
        return self._exchange.head.method == "HEAD"

    def answer_head(self, head: ResponseHead) -> Relay:
        exchange = self._exchange
        admission = exchange.admission
        self.head = head
        if head.status == 401:
            exchange.proxy.engine_asks_for_key()
        streams = head.is_event_stream
        hides = exchange.hides_usage and streams and 200 <= head.status < 300
        hides = hides and not head.is_encoded
        is_1_0 = exchange.head.is_1_0
        committed = exchange.head_out
        if committed and (head.status != 200 or not streams):
            mode = _ERROR
        elif hides or committed or is_1_0:
            mode = choose_mode(head.framing, is_1_0=is_1_0, hides_usage=hides, committed=committed)
        else:
            mode = _RAW
        if committed:
            exchange.answering(head, exchange.framing)
            head_data = b""
        else:
            framing = head.framing
            if mode is _FRAMED:
                framing = _CHUNKED
            elif mode is _PLAIN:
                framing = _CLOSE
            exchange.answering(head, framing)
            close = framing is _CLOSE or not exchange.client.keeps_alive
            head_data = encode_client_head(head, exchange.our_lines(), framing=framing, close=close)
        write = exchange.client.direct_write()
        if admission is None:
            self._relay = relay = Relay(write, mode=mode, head=head_data)
            return relay
        assert exchange.endpoint is not None
        self._reader = AnswerReader(
            exchange.endpoint, streams=streams, status=head.status, encoded=head.is_encoded
        )
        self._relay = relay = Relay(
            write,
            mode=mode,
            head=head_data,
            reader=self._reader,
            hides_usage=hides,
            first_token=exchange.first_token,
            observe_gap=exchange.proxy.metrics.gap_observer(admission.class_name),
        )
        return relay

    def answer_end(self) -> None:
        assert self._relay is not None
        self._connection = None
        self._relay.end()
        reader = self._reader
        if reader is not None and reader.usage_doubtful:
            self._exchange.proxy.metrics.usage_not_credible()
        self._exchange.answer_ended(failed=reader is not None and reader.failed)

    def engine_failed(self, fault: EngineFault) -> None:
        self._connection = None
        if self._relay is not None:
            self._relay.flush()  # the exchange counts on it that an answer's head is out
        self._exchange.attempt_failed(fault)

    # For the exchange.

    @property
    def began(self) -> bool:
        """A byte of the answer's body has gone to the client."""
        return self._relay is not None and self._relay.began

    def hold_answer(self, held: bool) -> None:
        """The client does not keep up with the answer, or does again."""
        if self._connection is not None:
            if held:
                self._connection.pause()
            else:
                self._connection.resume()

    def usage(self, *, prompt_tokens: int) -> Usage | None:
        """What the engine has done so far. None: it has not got the request."""
        if self._reader is not None:
            return self._reader.charge(prompt_tokens=prompt_tokens)
        return Usage(prompt_tokens=prompt_tokens) if self._name else None

    def leave(self) -> None:
        """Nobody waits for it any more: the engine sees it at once."""
        proxy = self._exchange.proxy
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        elif not self._name:
            proxy.pool.give_up(self)
        self.release()

    def release(self) -> None:
        """It is over: its name at the engine is free."""
        if self._name:
            self._exchange.proxy.ids.release(self._name)
