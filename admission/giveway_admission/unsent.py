"""Does a client take what was written to it?

What it has not taken lies in two places: in our buffer, and in the system's, which holds megabytes.
The system takes from our buffer in large steps, so a client that reads slowly but steadily changes
ours only now and then; what it has acknowledged shows in the system's alone. Nothing is asked per
write: only when a timer goes off, and the first look comes a moment after the stop, since what was
being written then still adds to it.

A client's system acknowledges in steps of its own (Linux: a sixteenth of its receive buffer), so
below some kilobytes a second one that reads can't be told from one that stands still.
"""

import asyncio
import fcntl
import sys
import termios

_FIRST_LOOK_S = 1.0
"""Long enough that a client which only paused is never looked at."""


def unsent_bytes(transport: asyncio.Transport) -> int:
    """What was written and the peer has not acknowledged, as far as the system tells."""
    held = transport.get_write_buffer_size()
    socket = transport.get_extra_info("socket")
    if socket is None:
        return held
    answer = bytearray(4)
    try:
        fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, answer)
    except (OSError, ValueError):  # closed, or a system that does not tell
        return held
    return held + int.from_bytes(answer, sys.byteorder)


class ReadingPace:
    """Judges, look by look, whether enough of what waits for a client was taken."""

    __slots__ = ("_before_bytes", "_least_bytes", "_period_s")

    def __init__(self, *, write_timeout_s: float, minimum_bytes_per_s: int) -> None:
        """`minimum_bytes_per_s` 0: only who takes nothing at all is too slow."""
        self._period_s = write_timeout_s
        self._least_bytes = max(1, int(write_timeout_s * minimum_bytes_per_s))
        self._before_bytes: int | None = None

    def begin(self) -> float:
        """Something waits for the client. In so many seconds `judge` wants to be asked."""
        self._before_bytes = None
        return min(_FIRST_LOOK_S, self._period_s)

    def judge(self, unsent: int) -> float | None:
        """In so many seconds to ask again. None: too little was taken since it was last asked."""
        before, self._before_bytes = self._before_bytes, unsent
        if before is not None and before - unsent < self._least_bytes:
            return None
        return self._period_s
