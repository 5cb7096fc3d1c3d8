"""Where does the head of a client's request end, and what does it say?

`HeadReader` takes what comes on one connection until a head is complete. Most clients send the same
head again and again, but for the length of the body: a head that differs in nothing else from the
last one of this connection says the same, and is not parsed again. Nothing is shared between
connections, so no client's head or key can reach another's request.
"""

import re
from typing import Final

import httptools

from giveway_admission.request_heads import (
    BadHeadError,
    HeadCollector,
    RequestHead,
    read_request_head,
)
from giveway_admission.settings import ProxySettings

_HEAD_END: Final = b"\r\n\r\n"
_LINE_ENDS: Final = b"\r\n"
_LONGEST_REMEMBERED_BYTES: Final = 4096
"""Of a head. It is kept as long as the connection, also while that is idle."""
_LONGEST_LENGTH: Final = 18
"""Digits."""
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})(?=\r\n)", re.IGNORECASE)


class HeadReader:
    """Reads one head after the other."""

    __slots__ = (
        "_after",
        "_before",
        "_collector",
        "_known",
        "_parser",
        "_seen",
        "_settings",
        "rest",
    )

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._collector: HeadCollector | None = None
        self._parser: httptools.HttpRequestParser | None = None
        self._seen = b""
        self._known: RequestHead | None = None
        """The last head. None: it is not worth remembering."""
        self._before = b""
        """What stands in it before the digits of its length."""
        self._after = b""
        """What stands behind them, up to its end."""
        self.rest = b""
        """What came behind the last head that was complete."""

    @property
    def has_begun(self) -> bool:
        """Part of a head is here."""
        return bool(self._seen)

    @property
    def held_bytes(self) -> int:
        """Of a head that is not complete."""
        return len(self._seen)

    def feed(self, data: bytes) -> RequestHead | None:
        """A head that ends in `data`. None: it does not end yet. Raises `BadHeadError`."""
        if self._known is not None and not self._seen and data.startswith(self._before):
            head = self._same_again(self._known, data)
            if head is not None:
                return head
        seen = self._seen
        if not seen:
            data = data.lstrip(_LINE_ENDS)  # empty lines before a request begin nothing
            if not data:
                return None
        before = len(seen)
        seen = seen + data if before else data
        end = seen.find(_HEAD_END, max(0, before - 3))
        cut = len(seen) if end < 0 else end + len(_HEAD_END)
        if cut > self._settings.maximum_head_bytes:
            raise BadHeadError("The request head is too large.", status=431)
        parser, collector = self._parser, self._collector
        if parser is None or collector is None:
            self._collector = collector = HeadCollector()
            self._parser = parser = httptools.HttpRequestParser(collector)
        try:
            parser.feed_data(seen[before:cut])
        except httptools.HttpParserUpgrade:
            pass  # judged with the headers
        except httptools.HttpParserError:
            raise BadHeadError("The request is not valid HTTP.") from None
        if end < 0:
            self._seen = seen
            return None
        data = seen[:cut]
        head = read_request_head(
            data,
            collector,
            method=parser.get_method(),
            version=parser.get_http_version(),
            maximum_headers=self._settings.maximum_headers,
        )
        self._parser = None
        self._collector = None
        self._seen = b""
        self.rest = seen[cut:]
        self._remember(data, head)
        return head

    def _same_again(self, known: RequestHead, data: bytes) -> RequestHead | None:
        """The head at the start of `data`, if only its length may differ from the known one's."""
        start, after = len(self._before), self._after
        end = data.find(after, start, start + _LONGEST_LENGTH + len(after))
        digits = data[start:end]
        cut = end + len(after)
        if end < 0 or not digits.isdigit() or cut > self._settings.maximum_head_bytes:
            return None
        self.rest = data[cut:]
        length = int(digits)
        return known if length == known.content_length else known.with_length(length)

    def _remember(self, data: bytes, head: RequestHead) -> None:
        self._known = None
        if len(data) > _LONGEST_REMEMBERED_BYTES or head.chunked or head.expects_continue:
            return
        found = _LENGTH.search(data)
        if found is not None and head.content_length is not None:
            self._known = head
            self._before = data[: found.start(1)]
            self._after = data[found.end(1) :]
