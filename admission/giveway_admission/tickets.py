"""What is a ticket, who gets one, and what is told about it?

A batch client that would rather come back than hold a connection open says so (`Prefer:
respond-async`, RFC 7240) and gets a ticket: an id under which the answer is found later (H4). The
rules alone, without I/O: what is preferred, what may be kept of a request, what an answer is made
of, and how a ticket looks to its owner.

What always holds
- Of a request's headers only those in `_KEPT` are kept on disk, so that no credential ever is.
- An id can't be guessed; it is not logged.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from giveway_admission.endpoints import BodyKind, Dialect, Endpoint, PriorityBy, Refused
from giveway_admission.outcomes import Outcome

TICKETS_PREFIX: Final = "/v1/tickets/"
TICKET_ENDPOINT: Final = Endpoint(
    path=TICKETS_PREFIX,
    dialect=Dialect.OTHER,
    methods=frozenset({"GET", "DELETE"}),
    metered=False,
    body=BodyKind.NONE,
    priority_by=PriorityBy.NOTHING,
    runs_model=False,
)
LONGEST_KEY = 255
"""Characters of an Idempotency-Key."""
OVERHEAD_BYTES = 1024
"""What a ticket takes beside its body or answer, roughly."""

_ID = re.compile(r"[A-Za-z0-9_-]{32}")
_KEY = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")
_SECONDS = re.compile(r"[0-9]{1,9}")
_PREFERENCE = re.compile(
    r"""[ \t]*(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+)
    (?:[ \t]*=[ \t]*(?P<value>[!#$%&'*+.^_`|~0-9A-Za-z-]+|"(?:[^"\\]|\\.)*"))?
    (?P<parameters>(?:[ \t]*;(?:[^",]|"(?:[^"\\]|\\.)*")*)?)
    [ \t]*(?:,|$)""",
    re.VERBOSE,
)
_KEPT: Final = (
    *(b"content-type", b"accept", b"user-agent", b"x-request-id"),
    *(b"traceparent", b"tracestate", b"x-giveway-class", b"x-giveway-source"),
    *(b"x-giveway-workflow", b"x-giveway-waits-for"),
)
"""Headers of a request that are kept with it."""
_FRAMING: Final = (b"content-length:", b"connection:", b"transfer-encoding:")
_MOMENTARY: Final = (b"retry-after", b"x-ratelimit-", b"cache-control:")
"""What header lines begin with that hold for the moment of an answer alone."""
_LONGEST_FIELD_BYTES = 1024
_FIRST_HINT_S = 1.0
_LONGEST_HINT_S = 30.0


class TicketStatus(StrEnum):
    """How far a ticket is. The last four are final."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def is_open(self) -> bool:
        return self in (TicketStatus.QUEUED, TicketStatus.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What a client that wants a ticket said."""

    wait_s: float | None
    """How long it waits for the answer before it takes the ticket. None: it did not say; 0."""

    def applied(self, *, with_ticket: bool) -> bytes:
        """The header line that says what was heeded; b"": nothing."""
        names = [b"respond-async"] if with_ticket else []
        if self.wait_s is not None:
            names.append(b"wait=%d" % self.wait_s)
        return b"Preference-Applied: %b\r\n" % b", ".join(names) if names else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketAnswer:
    """The whole answer to a ticket's request."""

    status: int
    reason: bytes
    lines: bytes
    """Header lines, each with its line end, without what frames the body."""
    body: bytes = field(repr=False)

    def lasting(self) -> "TicketAnswer":
        """As it is told later: without what held for its moment alone."""
        lines = [
            line
            for line in self.lines.splitlines(keepends=True)
            if not line.lower().startswith(_MOMENTARY)
        ]
        lines.append(b"Cache-Control: no-store\r\n")
        return replace(self, lines=b"".join(lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketRequest:
    """What is kept of a request, so that it can be run again."""

    path: str
    fields: Mapping[bytes, bytes]
    """Headers by lower-case name."""
    body: bytes = field(repr=False)


def read_preferences(value: bytes | None, *, longest_wait_s: float) -> Preferences | None:
    """What a `Prefer` header says of tickets. None: its sender wants none.

    Of a preference that is repeated the first counts, and what can't be read is not there (RFC
    7240, 2).
    """
    if value is None or b"respond-async" not in value.lower():
        return None
    found: dict[str, str] = {}
    text, at = value.decode("latin-1"), 0
    while at < len(text):
        match = _PREFERENCE.match(text, at)
        if match is None:
            at = text.find(",", at) + 1 or len(text)
            continue
        found.setdefault(match["name"].lower(), (match["value"] or "").strip('"'))
        at = match.end()
    if found.get("respond-async", "-") != "":
        return None
    wait = found.get("wait", "")
    if not _SECONDS.fullmatch(wait):
        return Preferences(wait_s=None)
    return Preferences(wait_s=min(float(wait), longest_wait_s))


def read_key(value: bytes | None) -> bytes | None:
    """An Idempotency-Key. None: there is none. Raises `ValueError` with what is wrong."""
    if value is None:
        return None
    key = value.strip(b" \t")
    if len(key) > LONGEST_KEY or not _KEY.fullmatch(key):
        raise ValueError(f"Idempotency-Key has to be 1 to {LONGEST_KEY} printable characters.")
    return key


def digest_key(tenant: str, key: bytes) -> bytes:
    """What stands for a tenant's key: the key itself is kept nowhere."""
    return hashlib.sha256(tenant.encode() + b"\0" + key).digest()


def fingerprint(path: str, body: bytes) -> bytes:
    """Equal for equal requests."""
    return hashlib.sha256(path.encode() + b"\0" + body).digest()


def make_id() -> str:
    return secrets.token_urlsafe(24)


def find_ticket_endpoint(method: str, path: str) -> Endpoint | Refused | None:
    """None: the path is no ticket's."""
    if not path.startswith(TICKETS_PREFIX) or not _ID.fullmatch(ticket_id(path)):
        return None
    if method in TICKET_ENDPOINT.methods:
        return TICKET_ENDPOINT
    return Refused(status=405, allowed_methods=tuple(sorted(TICKET_ENDPOINT.methods)))


def ticket_id(path: str) -> str:
    return path[len(TICKETS_PREFIX) :]


def keep_fields(fields: Mapping[bytes, bytes], *, name: bytes) -> dict[bytes, bytes]:
    """The headers that are kept of a request called `name`."""
    kept = {
        each: fields[each]
        for each in _KEPT
        if each in fields and len(fields[each]) <= _LONGEST_FIELD_BYTES
    }
    kept[b"x-request-id"] = name
    return kept


def split_answer(data: bytes) -> TicketAnswer:
    """An answer out of the bytes that a client of HTTP/1.0 would have got."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    _, status, *reason = first.split(b" ", 2)
    kept = [line for line in lines if not line.lower().startswith(_FRAMING)]
    return TicketAnswer(
        status=int(status),
        reason=reason[0] if reason else b"",
        lines=b"".join(line + b"\r\n" for line in kept),
        body=body,
    )


def final_status(outcome: Outcome, *, engine_up: bool) -> TicketStatus:
    """How a ticket ends whose request ended so."""
    if outcome is Outcome.COMPLETED:
        return TicketStatus.COMPLETED
    expired_away = outcome is Outcome.ENGINE_UNAVAILABLE and not engine_up
    if outcome is Outcome.QUEUE_TIMEOUT or expired_away:
        return TicketStatus.EXPIRED
    return TicketStatus.FAILED


def retry_hint_s(age_s: float) -> float:
    """When it is worth asking again: the longer it took so far, the later. Between 1 and 30 s."""
    return min(max(_FIRST_HINT_S, age_s / 4), _LONGEST_HINT_S)


def describe(identity: str, status: TicketStatus, *, created_s: float, expires_s: float) -> bytes:
    """A ticket as its owner sees it. Times are Unix time."""
    content = {
        "id": identity,
        "object": "ticket",
        "status": status.value,
        "created_at": int(created_s),
        "expires_at": int(expires_s),
    }
    return json.dumps(content, separators=(",", ":")).encode()
