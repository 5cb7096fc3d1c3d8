"""Does an answer of the engine begin as the last one on its connection did?

An engine's plain answers differ in their heads by the length of the body, and once a second by the
date. A head that is otherwise the last one's, byte for byte, says what that one said, so it is not
read again; and since it states a length, the end of the body is known by counting.
"""

import re
from typing import Final

from giveway_admission.response_heads import Framing, ResponseHead

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})(?=\r\n)", re.IGNORECASE)
_LONGEST_LENGTH: Final = 18
"""Digits."""
_LONGEST_REMEMBERED_BYTES: Final = 4096
"""Of a head. It is kept as long as the connection."""


class RepeatedAnswer:
    """The last answer's head, of one connection."""

    __slots__ = ("_after", "_before", "_head", "body_bytes", "rest")

    def __init__(self) -> None:
        self._head: ResponseHead | None = None
        """None: nothing is remembered."""
        self._before = b""
        """What stands in it before the digits of its length."""
        self._after = b""
        """What stands behind them, up to its end."""
        self.body_bytes = 0
        """Length of the body behind the head that was recognised last."""
        self.rest = b""
        """What came behind that head."""

    def remember(self, data: bytes, head: ResponseHead) -> None:
        """`data` was the whole of `head`."""
        self._head = None
        if head.framing is not Framing.LENGTH or len(data) > _LONGEST_REMEMBERED_BYTES:
            return
        found = _LENGTH.search(data)
        if found is not None:
            self._head = head
            self._before = data[: found.start(1)]
            self._after = data[found.end(1) :]

    def recognise(self, data: bytes) -> ResponseHead | None:
        """The head at the start of `data`, if it is the last one's but for the length."""
        head = self._head
        if head is None or not data.startswith(self._before):
            return None
        start, after = len(self._before), self._after
        end = data.find(after, start, start + _LONGEST_LENGTH + len(after))
        digits = data[start:end]
        if end < 0 or not digits.isdigit():
            return None
        self.body_bytes = int(digits)
        self.rest = data[end + len(after) :]
        return head if digits == head.content_length else head.with_length(digits)
