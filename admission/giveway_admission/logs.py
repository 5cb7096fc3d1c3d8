"""What does the proxy write down, and what never?

One event, one line on standard error: JSON, or text for a terminal. Through the standard library's
logging, so that what other packages say comes out in the same shape.

Never written: prompts, answers, API keys, headers. Callers give names and numbers as fields; this
module makes sure that a mistake there stays harmless:
- control characters and line ends are escaped, fields are cut at `FIELD_LIMIT` (G10);
- what looks like a credential is blotted out of every text (G03);
- of an exception only the type and the places in the code are written, since messages of parsers
  quote what they were given. The exception is `OSError`, whose text is the system's own.
"""

import json
import logging
import re
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO

FIELD_LIMIT = 300
_FRAMES = 12

_CREDENTIALS = re.compile(
    r"(?i:(?P<name>[\w-]*(?:api[-_]?key|authorization|cookie|secret|password|passwd|token|[?&]key))"
    r"[\"']?\s*[=:]\s*[\"']?(?:(?:bearer|basic)\s+)?)[^\s\"',;&]+"
    r"|(?i:(?P<scheme>bearer|basic)\s+)[^\s\"',;]{8,}"
    r"|(?<=://)[^/\s@]*@"
    r"|(?<![A-Za-z0-9])(?i:sk|pk|ghp|hf|xox[a-z])[-_][A-Za-z0-9._-]{6,}"
    r"|(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9._-]+)?"
)
_HINTS = (
    *("bearer", "basic", "key", "authorization", "cookie", "secret", "passw", "token"),
    *("://", "sk-", "sk_", "pk-", "pk_", "ghp", "hf-", "hf_", "xox", "eyj"),
)
"""One of these is in every text that `_CREDENTIALS` finds: looking for them is ten times faster."""
_UNPRINTABLE = re.compile(
    r"[^\x20-\x7e\xa0-\u2027\u202f-\u2065\u2070-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd]"
)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class LogFormat(StrEnum):
    JSON = "json"
    TEXT = "text"


def configure_logging(
    level: str = "info", log_format: LogFormat = LogFormat.JSON, *, stream: TextIO | None = None
) -> None:
    """Send everything to `stream` (None: standard error) in one format; may be called again."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JSONLines() if log_format is LogFormat.JSON else TextLines())
    handler.addFilter(_is_ours_to_know)
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old.formatter, JSONLines | TextLines):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Below warning aiohttp logs each request with path and query, asyncio its selector.
    for name in ("aiohttp.access", "asyncio"):
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _is_ours_to_know(record: logging.LogRecord) -> bool:
    """False for the errors that aiohttp logs when bytes on the admin port are no HTTP, or no body.

    Whoever sent them is told by a 400; a port scan must wake nobody.
    """
    if record.name != "aiohttp.server" or not record.exc_info:
        return True
    from aiohttp.http_exceptions import HttpProcessingError
    from aiohttp.web import RequestPayloadError

    return not isinstance(record.exc_info[1], HttpProcessingError | RequestPayloadError)


def log_event(logger: logging.Logger, level: int, event: str, **fields: object) -> None:
    """Log that `event` (a few fixed words) happened. `error=` takes an exception."""
    if logger.isEnabledFor(level):
        logger.log(level, event, extra={"fields": fields})


def clean_text(text: str, *, limit: int = FIELD_LIMIT) -> str:
    """`text` on one line, printable, without credentials, at most `limit` characters."""
    shown = text[: limit * 2] if len(text) > limit * 2 else text
    lower = shown.lower()
    if any(hint in lower for hint in _HINTS):
        shown = _CREDENTIALS.sub(_blot, shown)
    if not (shown.isascii() and shown.isprintable()):
        shown = _UNPRINTABLE.sub(lambda match: ascii(match.group())[1:-1], shown)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _blot(match: re.Match[str]) -> str:
    return f"{match.group('scheme') or match.group('name') or ''} ***".lstrip()


def _describe_exception(error: BaseException) -> str:
    """Type and the innermost places in the code, without what the message may quote."""
    name = type(error).__name__
    text = f"{name}: {error.strerror}" if isinstance(error, OSError) and error.strerror else name
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    places = " < ".join(
        f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}"
        for frame in reversed(frames)
    )
    return f"{text} at {places}" if places else text


def _clean_value(value: object) -> object:
    match value:
        case None | bool() | int():
            return value
        case float():
            return round(value, 6) if value - value == 0.0 else str(value)
        case BaseException():
            return clean_text(_describe_exception(value), limit=2000)
        case Mapping():
            return {
                clean_text(str(key), limit=64): _clean_value(item)
                for key, item in list(value.items())[:32]
            }
        case list() | tuple() | set() | frozenset():
            return [_clean_value(item) for item in list(value)[:32]]
        case bytes() | bytearray() | memoryview():
            return f"<{len(value)} bytes>"
        case _:
            return clean_text(str(value))


def _entries(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, "fields", None)
    entries: dict[str, object] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "event": clean_text(_message(record)),
        "logger": record.name,
    }
    if isinstance(fields, Mapping):
        for key, value in fields.items():
            entries.setdefault(str(key), _clean_value(value))
    if record.exc_info and record.exc_info[1] is not None:
        entries.setdefault("error", _clean_value(record.exc_info[1]))
    return entries


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):  # the arguments do not fit the text
        return str(record.msg)


class JSONLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_entries(record), ensure_ascii=False, separators=(",", ":"))


class TextLines(logging.Formatter):
    """`time level event key=value ...` for a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        entries = _entries(record)
        head = " ".join(str(entries.pop(key)) for key in ("time", "level", "event"))
        entries.pop("logger")
        tail = " ".join(f"{key}={json.dumps(value)}" for key, value in entries.items())
        return f"{head} {tail}".rstrip()
