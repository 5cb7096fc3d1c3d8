"""How does a member get into a JSON object that passes by in pieces?

As its last one, which is the one that counts: only the object's closing brace is held back until
the end has come. White space behind the brace goes on before it, which means the same, so that
never more than one byte is held.
"""

_SPACE = b" \t\n\r"
_OPENING = ord("{")
_CLOSING = ord("}")


class MemberAppender:
    """For one body. `feed` it each piece, send what it returns, then `end`.

    All that it returns together is `extra_bytes` longer than what it was fed. A body that does not
    end like an object is none: it gets spaces at its end, and stays as invalid as it was.
    """

    __slots__ = ("_holds_brace", "_last", "_member", "extra_bytes")

    def __init__(self, member: bytes) -> None:
        self._member = member
        self._holds_brace = False
        self._last = 0
        """The last byte that was passed on and is no white space."""
        self.extra_bytes = len(member) + 1

    def feed(self, data: bytes) -> bytes:
        inner = data.rstrip(_SPACE)
        if not inner:
            return data
        held = b"}" if self._holds_brace else b""
        self._holds_brace = inner[-1] == _CLOSING
        if not self._holds_brace:
            self._last = inner[-1]
            return held + data if held else data
        passed = held + inner[:-1]
        before = passed.rstrip(_SPACE)
        if before:
            self._last = before[-1]
        return passed + data[len(inner) :]

    def end(self) -> bytes:
        if not self._holds_brace:
            return b" " * self.extra_bytes
        if self._last == _OPENING:  # an object without members
            return self._member + b"} "
        return b"," + self._member + b"}"
