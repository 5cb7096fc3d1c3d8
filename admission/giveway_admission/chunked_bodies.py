"""What is inside a request body that comes in chunks?

The same strict parser as for heads takes the chunks apart; it is given a head of our own first, so
that each body has a parser to itself.
"""

import httptools

_HEAD = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


class ChunkedBody:
    """One body. `feed` it what comes behind the head."""

    __slots__ = ("_parser", "_parts", "has_more_behind", "is_complete", "on_body")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.on_body = self._parts.append
        self.is_complete = False
        self.has_more_behind = False
        """Something came behind its end that is not part of it."""
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(_HEAD)

    def feed(self, data: bytes) -> bytes:
        """The bytes of the body in `data`. Raises `HttpParserError` for framing that is broken."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if not self.is_complete:
                raise
            self.has_more_behind = True
        body = b"".join(self._parts)
        self._parts.clear()
        return body

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise _MoreBehindError

    def on_message_complete(self) -> None:
        self.is_complete = True


class _MoreBehindError(Exception):
    """Stops the parser behind the body."""
