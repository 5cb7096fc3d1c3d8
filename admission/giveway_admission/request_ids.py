"""What is a request called, here and at the engine?

The client's own `X-Request-Id` is kept if it is harmless, and one is made otherwise; the client
gets it back. The engine makes it a part of the answer's id and may not take two of the same name at
once, so one that is in use there already gets a suffix on its way (A39).
"""

import re
import secrets
from itertools import count

_HARMLESS = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
"""What an id of a client's may be, to go into logs, headers and metrics as it is."""


def harmless_id(value: bytes | None) -> str | None:
    """An id that a client chose. None: it gave none, or one that is not harmless."""
    if value is None:
        return None
    value = value.strip(b" \t")
    return value.decode("ascii") if _HARMLESS.fullmatch(value) else None


class RequestIds:
    """Names of all requests of one process."""

    __slots__ = ("_at_engine", "_numbers", "_prefix")

    def __init__(self) -> None:
        self._prefix = b"gw-" + secrets.token_hex(4).encode() + b"-"
        self._numbers = count(1)
        self._at_engine: set[bytes] = set()

    def name(self, asked: bytes | None) -> bytes:
        """The request's name. `asked` None: the client gave none."""
        if asked is not None and _HARMLESS.fullmatch(asked):
            return asked
        return self._prefix + b"%x" % next(self._numbers)

    def claim(self, name: bytes, *, again: bool = False) -> bytes:
        """The name at the engine, until `release`. `again`: it was sent before under `name`."""
        if again or name in self._at_engine:
            name = name + b"-%x" % next(self._numbers)
        self._at_engine.add(name)
        return name

    def release(self, name: bytes) -> None:
        self._at_engine.discard(name)

    def __len__(self) -> int:
        """How many are in use at the engine."""
        return len(self._at_engine)
