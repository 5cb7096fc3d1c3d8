"""How much is in a JSON text that has too many pieces to be taken apart?

What JSON costs to read grows with its pieces (values, keys), each some hundred nanoseconds, and not
with its bytes: a quarter megabyte is one long text, or 87,000 empty lists that would hold up
everybody for a twentieth of a second. So a text that is long and crowded is skimmed: its bytes are
counted by searches that run at the speed of memory, and what they tell is an estimate.
"""

import re
from typing import Final

from giveway_admission.estimates import Estimates, tokens_of_bytes

MOST_PIECES: Final = 4096
"""Of a text that is taken apart, which then takes two or three milliseconds."""

_SHORT_BYTES: Final = 16 * 1024
"""What is no longer can't be crowded enough to matter, and is not counted."""

_MEDIA_BYTES: Final = 1024
"""A string has to be this long to be taken for media."""
_MEDIA_START = re.compile(rb"data:|[A-Za-z0-9+/_-]{512}")
_FIRST_ITEM = re.compile(rb"[ \t\n\r]*+\[[ \t\n\r]*+(.)", re.DOTALL)
_SPACE = b" \t\n\r"
_OF_NUMBERS = b"0123456789[],-" + _SPACE


def is_crowded(text: bytes | memoryview) -> bool:
    """It has more pieces than are taken apart. Commas and brackets inside strings count too."""
    if len(text) <= _SHORT_BYTES:
        return False
    text = bytes(text)
    return text.count(b",") + text.count(b"[") + text.count(b"{") > MOST_PIECES


def skim_tokens(text: bytes, estimates: Estimates) -> int:
    """Tokens of a JSON text, pictures and sound in it counted as such."""
    media, media_bytes, _ = find_media(text)
    return tokens_of_bytes(_written_out(text) - media_bytes, estimates) + (
        media * estimates.image_tokens
    )


def skim_prompts(text: bytes, estimates: Estimates) -> tuple[int, int]:
    """(tokens of all prompts together, number of prompts) of a `prompt` or `input` field.

    Token ids are counted exactly.
    """
    first = _FIRST_ITEM.match(text)
    if first is None:
        return skim_tokens(text, estimates), 1
    if first[1] == b'"':
        return skim_tokens(text, estimates), max(1, (text.count(b'"') - text.count(b'\\"')) // 2)
    if first[1] == b"{":
        return skim_tokens(text, estimates), text.count(b"{")
    lists = max(1, text.count(b"[") - 1)
    if text.translate(None, _OF_NUMBERS):
        return skim_tokens(text, estimates), lists
    empty = text.translate(None, _SPACE).count(b"[]")
    return text.count(b",") + 1 - empty, lists


def find_media(text: bytes) -> tuple[int, int, bool]:
    """(number, bytes together, the last one is not closed) of strings that look like media.

    Their places are not known, so what counts is that they are long and look like it.
    """
    count = in_bytes = start = 0
    open_at_end = False
    while start + _MEDIA_BYTES <= len(text):
        quote = text.rfind(b'"', start, start + _MEDIA_BYTES)
        if quote >= 0:  # nothing so long begins before it; two such steps pass a kilobyte
            start = quote + 1
            continue
        end = text.find(b'"', start + _MEDIA_BYTES)
        if _MEDIA_START.match(text, start):
            open_at_end = end < 0
            count += 1
            in_bytes += (len(text) if end < 0 else end) - start
        if end < 0:
            break
        start = end + 1
    return count, in_bytes, open_at_end


def _written_out(text: bytes) -> int:
    """Bytes of the text without what escaping adds: one of \\n, three of \\u4f60."""
    backslashes = text.count(b"\\")
    if not backslashes:
        return len(text)
    return len(text) - backslashes + text.count(b"\\\\") - 2 * text.count(b"\\u")
