"""Is a client that reads slowly told from one that stands still?"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from giveway_admission.client_connections import ClientConnection
from giveway_admission.unsent import ReadingPace, unsent_bytes

from tests.admission.data_plane import LOCAL, running
from tests.support.scripted_engine import ScriptedEngine, chatting
from tests.support.waiting import until

MIB = 2**20


def pace(*, minimum: int = 0) -> ReadingPace:
    return ReadingPace(write_timeout_s=60.0, minimum_bytes_per_s=minimum)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamWriter, socket.socket]]:
    """A transport, and the socket of a peer that reads only when the test does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        _, writer = await asyncio.open_connection(*listener.getsockname())
        peer, _ = await asyncio.get_running_loop().sock_accept(listener)
    with peer:
        peer.setblocking(False)
        yield writer, peer
        writer.transport.abort()


async def test_what_the_system_holds_counts_as_not_taken() -> None:
    """Written, gone from our buffer or not: until the peer has it, it is unsent."""
    async with connected() as (writer, peer):
        transport = cast("asyncio.Transport", writer.transport)
        assert unsent_bytes(transport) == 0
        writer.write(b"x" * 32 * MIB)
        held = transport.get_write_buffer_size()
        assert held < unsent_bytes(transport) <= 32 * MIB

        taken = 0
        while transport.get_write_buffer_size() == held or taken < 30 * MIB:
            taken += len(await asyncio.get_running_loop().sock_recv(peer, MIB))
        assert unsent_bytes(transport) <= 32 * MIB - taken

        while taken < 32 * MIB:
            taken += len(await asyncio.get_running_loop().sock_recv(peer, MIB))
        await until(lambda: unsent_bytes(transport) == 0, what="all of it is acknowledged")


async def test_a_steady_reader_shows_where_our_own_buffer_does_not_change() -> None:
    """The fault that this is for: the system refills from our buffer in steps of megabytes."""
    async with connected() as (writer, peer):
        transport = cast("asyncio.Transport", writer.transport)
        writer.write(b"x" * 32 * MIB)
        looks: list[int] = []
        await until(lambda: _stands_still(transport, looks), what="the peer's system is full")
        held, unsent = transport.get_write_buffer_size(), unsent_bytes(transport)
        while unsent_bytes(transport) == unsent:
            peer.recv(65536)
            await asyncio.sleep(0)
        assert transport.get_write_buffer_size() == held


def _stands_still(transport: asyncio.Transport, looks: list[int]) -> bool:
    looks.append(unsent_bytes(transport))
    return len(looks) > 1 and looks[-1] == looks[-2]


def test_the_first_look_judges_nobody() -> None:
    """What was being written when the client fell behind is added after the stop."""
    slow = pace()
    assert slow.begin() == 1.0
    assert slow.judge(10 * MIB) == 60.0


@pytest.mark.parametrize(
    ("minimum", "taken", "passes"),
    [
        (0, 0, False),
        (0, 1, True),
        (1024, 60 * 1024 - 1, False),  # 1 KiB/s x 60 s
        (1024, 60 * 1024, True),
        (0, -5, False),
    ],
)
def test_who_takes_less_than_the_least_is_too_slow(
    minimum: int, taken: int, *, passes: bool
) -> None:
    """From one look to the next; without a least rate a single byte is enough."""
    slow = pace(minimum=minimum)
    slow.begin()
    slow.judge(MIB)
    assert (slow.judge(MIB - taken) is not None) is passes


def test_each_look_counts_from_the_one_before() -> None:
    """Having been fast once earns nothing; a new beginning forgets."""
    slow = pace(minimum=1)
    slow.begin()
    looks = [slow.judge(unsent) for unsent in (1000, 500, 470)]
    assert looks == [60.0, 60.0, None]
    slow.begin()
    assert slow.judge(470) == 60.0


def test_a_short_time_is_kept_exactly() -> None:
    """The first look is never later than the time itself."""
    assert ReadingPace(write_timeout_s=0.2, minimum_bytes_per_s=0).begin() == 0.2


def test_where_the_system_tells_nothing_our_buffer_counts() -> None:
    """A transport without a socket, or whose socket is closed."""
    assert unsent_bytes(_Held(None)) == 7
    closed = socket.socket()
    closed.close()
    assert unsent_bytes(_Held(closed)) == 7


async def test_the_last_of_an_answer_goes_out_as_slowly_as_it_is_read(tmp_path: Path) -> None:
    """After the close, too: who takes what is left is let, and who stands still is cut."""
    hasty = replace(LOCAL, write_timeout_s=0.02, minimum_read_bytes_per_s=0)
    async with (
        ScriptedEngine(chatting()) as engine,
        running(engine.url, tmp_path, settings=hasty) as server,
    ):
        reading, standing = _Held(None, held_bytes=MIB, takes_bytes=1), _Held(None, held_bytes=7)
        for transport in (reading, standing):
            connection = ClientConnection(server.proxy)
            connection.connection_made(transport)
            connection.close_idle()
        await until(lambda: standing.aborted, what="who stands still is cut")
        await until(lambda: reading.looks >= 5, what="it was looked at again and again")
        assert not reading.aborted
        server.proxy.connections.clear()


class _Held(asyncio.Transport):
    """Holds bytes that nobody or somebody takes: so many from look to look."""

    def __init__(
        self, peer: socket.socket | None, *, held_bytes: int = 7, takes_bytes: int = 0
    ) -> None:
        super().__init__({"socket": peer})
        self._held_bytes = held_bytes
        self._takes_bytes = takes_bytes
        self.looks = 0
        self.aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        self._held_bytes -= self._takes_bytes
        return self._held_bytes

    def close(self) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True
