"""How much of requests that nobody has judged yet may lie in memory at once?

Before a request is admitted no queue and no rate counts it, and each client may have part of one on
its way. So what may come is counted together. Who finds no room is not read further: its body stays
in its socket until others are through, in order of arrival, and is refused if that takes too long.

Nobody needs room for `FREE_BYTES`: small requests go on however many large ones wait.

What always holds: bytes of `Room`s together <= limit; in the hands of those that wait <= a quarter
of it; in small requests <= `FREE_BYTES` for each client.
"""

from collections.abc import Callable
from typing import Final

FREE_BYTES: Final = 16 * 1024
"""Of one client. Most requests are shorter than this."""


class ArrivingBytes:
    """All clients together."""

    __slots__ = ("_limit_bytes", "_waiting", "_waiting_bytes", "held_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._waiting: dict[Room, None] = {}
        """In order of arrival."""
        self._waiting_bytes = 0
        self.held_bytes = 0

    def take(self, more_bytes: int) -> bool:
        if self.held_bytes + more_bytes > self._limit_bytes:
            return False
        self.held_bytes += more_bytes
        return True

    def give_back(self, fewer_bytes: int) -> None:
        self.held_bytes -= fewer_bytes
        self._let_in()

    def queue(self, room: "Room") -> bool:
        """False: those that wait have too much in their hands already."""
        if self._waiting_bytes + room.in_hand_bytes > self._limit_bytes // 4:
            return False
        self._waiting[room] = None
        self._waiting_bytes += room.in_hand_bytes
        return True

    def unqueue(self, room: "Room") -> None:
        if room in self._waiting:
            del self._waiting[room]
            self._waiting_bytes -= room.in_hand_bytes
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            room = next(iter(self._waiting))
            if not self.take(room.needed_bytes):
                return
            del self._waiting[room]
            self._waiting_bytes -= room.in_hand_bytes
            room.enter()

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._waiting)


class Room:
    """One client's part. `made` is called when the room that it waits for is there."""

    __slots__ = ("_all", "_bytes", "_made", "in_hand_bytes", "needed_bytes")

    def __init__(self, everybody: ArrivingBytes, made: Callable[[], None]) -> None:
        self._all = everybody
        self._made = made
        self._bytes = 0
        self.needed_bytes = 0
        """More than it has; 0: it waits for nothing."""
        self.in_hand_bytes = 0

    @property
    def is_awaited(self) -> bool:
        return self.needed_bytes > 0

    def grow_to(self, total_bytes: int) -> bool:
        """Room for so much, or for what it has if that is more. False: there is none now."""
        more_bytes = total_bytes - self._bytes
        if total_bytes <= FREE_BYTES or more_bytes <= 0:
            return True
        if not self._all.take(more_bytes):
            return False
        self._bytes = total_bytes
        return True

    def wait_for(self, total_bytes: int, *, in_hand_bytes: int) -> bool:
        """After `grow_to` in vain. False: too many wait already."""
        self.needed_bytes = total_bytes - self._bytes
        self.in_hand_bytes = in_hand_bytes
        if self._all.queue(self):
            return True
        self.needed_bytes = 0
        return False

    def enter(self) -> None:
        """What it waited for has been taken for it."""
        self._bytes += self.needed_bytes
        self.needed_bytes = 0
        self._made()

    def free(self) -> None:
        """It holds nothing more, and waits for nothing."""
        if self.needed_bytes:
            self._all.unqueue(self)
            self.needed_bytes = 0
        if self._bytes:
            held_bytes, self._bytes = self._bytes, 0
            self._all.give_back(held_bytes)
