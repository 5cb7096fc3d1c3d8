"""Is an answer whose head is the last one's read as if it were the first?"""

import asyncio

import pytest
from giveway_admission.engine_connections import EngineConnection, EngineFault
from giveway_admission.response_heads import ResponseHead

from tests.admission.test_data_plane_cost import CountingTransport

HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Tue\r\ncontent-length: %b\r\n"
    b"content-type: application/json\r\n%b\r\n"
)


def make(length: bytes, body: bytes, more: bytes = b"") -> bytes:
    return HEAD % (length, more) + body


FIRST = make(b"4", b"abcd")
SECONDS = {
    "same": FIRST,
    "other body": make(b"12", b"x" * 12),
    "empty": make(b"0", b""),
    "leading zero": make(b"004", b"abcd"),
    "too much": make(b"4", b"abcdHTTP/1.1 200"),
    "two answers": FIRST + FIRST,
    "too little": make(b"40", b"abcd"),
    "sign": make(b"+4", b"abcd"),
    "no length": make(b"", b"abcd"),
    "two lengths": make(b"4\r\ncontent-length: 5", b"abcd"),
    "chunks": make(b"4", b"abcd", b"transfer-encoding: chunked\r\n"),
    "closing": make(b"4", b"abcd", b"connection: close\r\n"),
    "early hints": b"HTTP/1.1 103 Early\r\n\r\n" + FIRST,
    "error": FIRST.replace(b"200 OK", b"500 No"),
    "huge": make(b"9" * 19, b"abcd"),
}


class Home:
    """Counts the connections that come back."""

    idle_timeout_s = 60.0

    def __init__(self) -> None:
        self.returned = 0

    def put(self, connection: EngineConnection) -> None:
        self.returned += 1

    def forget(self, connection: EngineConnection) -> None:
        pass


class Receiver:
    """Writes down what it hears."""

    def __init__(self, *, is_head_request: bool) -> None:
        self.is_head_request = is_head_request
        self.heard: list[object] = []
        self.body = b""

    def begin_sending(self, connection: EngineConnection) -> tuple[bytes, bytes]:
        return b"GET / HTTP/1.1\r\n\r\n", b""

    def answer_head(self, head: ResponseHead) -> "Receiver":
        self.heard += [head.status, head.framing, head.content_length, b"".join(head.passed)]
        return self

    def pass_on(self, data: bytes, body: bytes, now_s: float, *, complete: bool) -> None:
        self.body += body
        if complete:
            self.heard.append("complete")

    def flush(self) -> None:
        pass

    def answer_end(self) -> None:
        self.heard.append("end")

    def engine_failed(self, fault: EngineFault) -> None:
        self.heard.append(fault)

    def engine_congested(self, congested: bool) -> None:
        pass


def hear(answers: list[bytes], *, size: int, is_head_request: bool) -> tuple[object, ...]:
    """What the last receiver hears, and whether the connection came back after it."""
    home = Home()
    connection = EngineConnection(home, asyncio.get_running_loop())
    connection.connection_made(CountingTransport())
    receiver = Receiver(is_head_request=False)
    returned = 0
    for number, answer in enumerate(answers, 1):
        last = number == len(answers)
        receiver = Receiver(is_head_request=last and is_head_request)
        returned = home.returned
        connection.send(receiver)
        step = size if last else len(answer)
        for start in range(0, len(answer), step):
            connection.data_received(answer[start : start + step])
    connection.connection_lost(None)
    return receiver.heard, receiver.body, home.returned - returned


@pytest.mark.parametrize("is_head_request", [False, True], ids=["post", "head"])
@pytest.mark.parametrize("size", [1, 7, 88, 1000])
@pytest.mark.parametrize("second", SECONDS)
async def test_an_answer_after_another_is_heard_as_alone(
    second: str, size: int, *, is_head_request: bool
) -> None:
    """Whatever the length says and however the answer is cut; faults are found all the same."""
    answer = SECONDS[second]
    alone = hear([answer], size=size, is_head_request=is_head_request)
    for before in ([FIRST], [FIRST, FIRST], [make(b"0", b"")]):
        after = hear([*before, answer], size=size, is_head_request=is_head_request)
        assert after == alone


async def test_a_repeated_head_is_not_read_again() -> None:
    """The same object is told of both times."""
    heads: list[ResponseHead] = []

    class Keeping(Receiver):
        def answer_head(self, head: ResponseHead) -> "Receiver":
            heads.append(head)
            return super().answer_head(head)

    connection = EngineConnection(Home(), asyncio.get_running_loop())
    connection.connection_made(CountingTransport())
    for answer in (FIRST, FIRST, make(b"5", b"abcde")):
        connection.send(Keeping(is_head_request=False))
        connection.data_received(answer)
    connection.connection_lost(None)
    assert heads[0] is heads[1]
    assert heads[2].passed is heads[0].passed
    assert [head.content_length for head in heads] == [b"4", b"4", b"5"]
