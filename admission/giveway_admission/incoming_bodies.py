"""How much of a request's body is here, and where does it end?

Only for bodies that do not come whole with their head. What is at hand is kept until somebody takes
it; what came behind the body belongs to the next request.
"""

from giveway_admission.arriving import FREE_BYTES
from giveway_admission.chunked_bodies import ChunkedBody
from giveway_admission.request_heads import RequestHead

_DRAINED_BYTES = 256 * 1024
"""An unread body up to this is read and thrown away, to keep the connection."""
_SLOWEST_BYTES = 256 * 1024
"""In every body time-out a body has to bring this much, or end."""


_MOST_PARTS = 8
"""What comes in more pieces is put together: a piece costs fifty bytes, however short it is."""


class IncomingBody:
    """The body of one request."""

    __slots__ = (
        *("_checked_bytes", "_chunks", "_kept", "_remaining", "_waits_for_go", "ahead"),
        *("has_odd_rest", "is_complete", "received_bytes"),
    )

    def __init__(self, head: RequestHead) -> None:
        self._chunks = ChunkedBody() if head.chunked else None
        self._remaining = head.content_length or 0
        self._waits_for_go = head.expects_continue
        self._kept: list[bytes | bytearray] = []
        self._checked_bytes = 0
        self.received_bytes = 0
        self.is_complete = False
        self.ahead = b""
        """What came behind the body."""
        self.has_odd_rest = False
        """What came behind a body in chunks, in the same packet, was not taken apart: the
        connection is closed after the answer, and the client sends it again (RFC 9112, 9.3.2)."""

    def take(self, data: bytes) -> bytes:
        """What of `data` is body. Raises `HttpParserError` for chunks that are none."""
        if self._chunks is not None:
            data = self._chunks.feed(data)
            self.is_complete = self._chunks.is_complete
            self.has_odd_rest = self._chunks.has_more_behind
        else:
            if len(data) > self._remaining:
                self.ahead = data[self._remaining :]
                data = data[: self._remaining]
            self._remaining -= len(data)
            self.is_complete = self._remaining == 0
        self.received_bytes += len(data)
        return data

    def keep(self, data: bytes) -> None:
        kept = self._kept
        if len(kept) < _MOST_PARTS:
            kept.append(data)
            return
        last = kept[-1]
        if not isinstance(last, bytearray):
            kept[-1] = last = bytearray(last)
        last += data

    def take_kept(self) -> bytes:
        """What was kept, which is let go."""
        kept, self._kept = self._kept, []
        return bytes(kept[0]) if len(kept) == 1 else b"".join(kept)

    def coming_bytes(self, *, at_most: int) -> int:
        """How many it may be in all. What comes in chunks may well be small, until it is not."""
        if self._chunks is None:
            return min(self.received_bytes + self._remaining, at_most)
        return 0 if self.received_bytes <= FREE_BYTES else at_most

    @property
    def is_soon_over(self) -> bool:
        """So little is missing that it may be read and thrown away."""
        return self._chunks is None and not self._waits_for_go and self._remaining <= _DRAINED_BYTES

    def note_progress(self) -> None:
        """From here on the next time-out counts."""
        self._checked_bytes = self.received_bytes

    def came_fast_enough(self) -> bool:
        """Did enough come since `note_progress`?"""
        return self.received_bytes - self._checked_bytes >= _SLOWEST_BYTES
