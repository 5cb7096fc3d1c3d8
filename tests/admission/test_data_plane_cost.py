"""What does the data plane spend on a request and on a chunk?

Counted, not timed: system calls under saturation follow from reads and writes, and those are
counted here with transports that only count. Whoever adds a task, a future or a second write to the
way of a chunk fails a test, on any machine.
"""

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest
from giveway_admission.client_connections import ClientConnection
from giveway_admission.engine_connections import EngineConnection
from giveway_admission.metrics import Metrics
from giveway_admission.proxying import Proxy
from giveway_admission.runtime_policies import RuntimePolicy
from giveway_admission.settings import ProxySettings
from giveway_policy.defaults import default_document

from tests.support.raw_client import chat_body, request
from tests.support.vllm_answers import chat_answer, chat_events, chunk, stream_head

CHAT = "/v1/chat/completions"


def streamed(*, asks: bool) -> bytes:
    """A request for a stream; `asks`: with usage in it."""
    body = chat_body(stream=True)
    if asks:
        body["stream_options"] = {"include_usage": True}
    return request("POST", CHAT, body=body)


class CountingTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("192.0.2.1", 1) if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


class Wire:
    """A client's and an engine's connection of one proxy, without sockets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        policy = RuntimePolicy.build(default_document())
        metrics = Metrics(version="test")
        metrics.configure(policy)
        settings = ProxySettings(upstream="http://127.0.0.1:1")
        self.proxy = Proxy(settings, policy, loop=loop, metrics=metrics)
        self.proxy.admitter.set_engine_available(True)
        self.client = ClientConnection(self.proxy)
        self.to_client = CountingTransport()
        self.client.connection_made(self.to_client)
        self.engine = EngineConnection(self.proxy.pool, loop)
        self.to_engine = CountingTransport()
        self.engine.connection_made(self.to_engine)
        self.proxy.pool.put(self.engine)

    def forget(self) -> None:
        self.to_client.written.clear()
        self.to_engine.written.clear()


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    made = Wire(asyncio.get_running_loop())
    yield made
    made.client.connection_lost(None)
    made.engine.connection_lost(None)
    made.proxy.close()


async def test_a_plain_request_is_two_reads_and_two_writes(wire: Wire) -> None:
    """At most 4.2 system calls under saturation: one read and one write on either side."""
    data = request("POST", CHAT, body=chat_body())
    for _ in range(20):
        wire.forget()
        wire.client.data_received(data)
        assert len(wire.to_engine.written) == 1
        wire.engine.data_received(chat_answer())
        assert len(wire.to_client.written) == 1
    assert wire.proxy.pool.statistics().connecting == 0


@pytest.mark.parametrize("asks", [False, True], ids=["hidden", "asked"])
async def test_a_chunk_is_one_read_and_one_write_and_nothing_for_the_loop(
    wire: Wire, *, asks: bool
) -> None:
    """At most 2.1 system calls a chunk; no task, no future, no callback, no timer is made."""
    wire.client.data_received(streamed(asks=asks))
    wire.engine.data_received(stream_head())
    events = chat_events([str(number) for number in range(200)], include_usage=True)
    wire.engine.data_received(chunk(events[0]))
    wire.forget()
    scheduled: list[str] = []
    loop = asyncio.get_running_loop()
    names = ("call_soon", "call_later", "call_at", "create_task", "create_future")
    originals = {name: getattr(loop, name) for name in names}
    try:
        for name in names:
            setattr(loop, name, lambda *_, name=name, **__: scheduled.append(name))
        for event in events[1:150]:
            wire.engine.data_received(chunk(event))
    finally:
        for name, original in originals.items():
            setattr(loop, name, original)
    assert scheduled == []
    assert wire.to_client.written == [chunk(event) for event in events[1:150]]


async def test_an_ordinary_chunk_reaches_the_client_as_the_same_object(wire: Wire) -> None:
    """Where nothing has to be hidden the engine's bytes are not even copied."""
    written: list[bytes] = []
    wire.to_client.write = written.append  # type: ignore[assignment,method-assign]
    wire.client.data_received(streamed(asks=True))
    wire.engine.data_received(stream_head())
    data = chunk(chat_events(["a"])[1])
    wire.engine.data_received(data)
    assert written[-1] is data


async def test_a_thousand_requests_on_a_connection_make_no_new_timer(wire: Wire) -> None:
    """Deadlines of a connection move, they are not set anew."""
    headers = {"X-Giveway-Class": "realtime"}
    data = request("POST", CHAT, body=chat_body(), headers=headers)
    wire.client.data_received(data)
    wire.engine.data_received(chat_answer())
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    original = loop.call_later

    def counting(delay: float, *arguments: object) -> asyncio.TimerHandle:
        timers.append(delay)
        return original(delay, *arguments)  # type: ignore[arg-type]

    loop.call_later = counting  # type: ignore[assignment,method-assign]
    try:
        for _ in range(100):
            wire.client.data_received(data)
            wire.engine.data_received(chat_answer())
    finally:
        loop.call_later = original  # type: ignore[method-assign]
    assert len(timers) <= 3
    assert sum(item.startswith(b"HTTP/1.1 200") for item in wire.to_client.written) == 101


@pytest.mark.parametrize("kind", ["plain", "stream", "refused"])
async def test_a_request_leaves_nothing_for_the_collector(wire: Wire, kind: str) -> None:
    """No object of a request that has ended is in a cycle: all go at once, without a search."""
    body = chat_body(stream=kind == "stream")
    data = request("POST", CHAT if kind != "refused" else "/none", body=body)
    events = b"".join(chunk(event) for event in chat_events(["a", "b"], include_usage=True))

    def serve() -> None:
        wire.client.data_received(data)
        if kind == "plain":
            wire.engine.data_received(chat_answer())
        elif kind == "stream":
            wire.engine.data_received(stream_head())
            wire.engine.data_received(events + b"0\r\n\r\n")

    for _ in range(5):
        serve()
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            serve()
        assert gc.collect() == 0
    finally:
        gc.enable()
    assert wire.proxy.busy == 0
