"""What is preferred, what is kept, and how does a ticket look (H4)?"""

import json
import re

import pytest
from giveway_admission.endpoints import Endpoint, Refused, find_endpoint
from giveway_admission.outcomes import Outcome
from giveway_admission.tickets import (
    LONGEST_KEY,
    Preferences,
    TicketStatus,
    describe,
    digest_key,
    final_status,
    find_ticket_endpoint,
    fingerprint,
    keep_fields,
    make_id,
    read_key,
    read_preferences,
    retry_hint_s,
    split_answer,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        (b"respond-async", None),
        (b"Respond-Async", None),
        (b"respond-async, wait=10", 10.0),
        (b"wait=10, respond-async", 10.0),
        (b"respond-async,wait=10", 10.0),
        (b'respond-async, wait="10"', 10.0),
        (b"respond-async, WAIT = 10", 10.0),
        (b"respond-async; foo=bar, wait=7; x", 7.0),
        (b'foo="a, wait=3", respond-async, wait=4', 4.0),
        (b"respond-async, wait=3, wait=9", 3.0),
        (b"respond-async, wait=3600", 60.0),
        (b"respond-async, wait=0", 0.0),
        (b"respond-async, wait=-1", None),
        (b"respond-async, wait=soon", None),
        (b"respond-async, wait", None),
        (b"return=minimal, respond-async", None),
        (b"(nonsense), respond-async", None),
    ],
)
def test_preferences_are_read_as_rfc_7240_says(value: bytes, wait_s: float | None) -> None:
    """Any order and case, quoted or not; the first of a repeated one counts; wait is capped."""
    assert read_preferences(value, longest_wait_s=60.0) == Preferences(wait_s=wait_s)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"wait=10",
        b"return=minimal",
        b"respond-async=no",
        b"x-respond-async",
        b'note="respond-async"',
        b"respond-asynchronously",
    ],
)
def test_what_does_not_ask_for_a_ticket_gets_none(value: bytes | None) -> None:
    """The word alone, as a preference of its own."""
    assert read_preferences(value, longest_wait_s=60.0) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_ignored(value: bytes) -> None:
    """A header of a stranger's never raises and never waits longer than allowed."""
    for text in (value, b"respond-async," + value):
        found = read_preferences(text, longest_wait_s=5.0)
        assert found is None or found.wait_s is None or 0.0 <= found.wait_s <= 5.0


def test_long_headers_are_read_in_linear_time() -> None:
    """64 KiB that are almost something, again and again, cost no more than reading them."""
    for piece in (b'a="', b"a;", b"a =", b";,", b'"\\', b'a;b="', b" \t"):
        value = b"respond-async," + piece * (65536 // len(piece))
        assert read_preferences(value, longest_wait_s=5.0) == Preferences(wait_s=None)


def test_applied_preferences_are_named() -> None:
    """A ticket was respond-async; an answer in time was only the wait."""
    waits = Preferences(wait_s=10.0)
    assert waits.applied(with_ticket=True) == b"Preference-Applied: respond-async, wait=10\r\n"
    assert waits.applied(with_ticket=False) == b"Preference-Applied: wait=10\r\n"
    at_once = Preferences(wait_s=None)
    assert at_once.applied(with_ticket=True) == b"Preference-Applied: respond-async\r\n"
    assert at_once.applied(with_ticket=False) == b""


def test_idempotency_keys_are_bounded() -> None:
    """1 to 255 printable characters; what is else is refused and not cut."""
    assert read_key(None) is None
    assert read_key(b" job 7 ") == b"job 7"
    assert read_key(b"k" * LONGEST_KEY) == b"k" * LONGEST_KEY
    for bad in (b"", b"  ", b"k" * (LONGEST_KEY + 1), b"a\x01b", b"caf\xc3\xa9"):
        with pytest.raises(ValueError, match="Idempotency-Key"):
            read_key(bad)


def test_keys_of_two_tenants_never_meet() -> None:
    """The tenant is a part of what stands for the key, and can't be shifted into it."""
    assert digest_key("a", b"k") == digest_key("a", b"k")
    assert digest_key("a", b"k") != digest_key("b", b"k")
    assert digest_key("a", b"bk") != digest_key("ab", b"k")
    assert fingerprint("/v1/x", b"y") != fingerprint("/v1/xy", b"")


def test_ids_can_not_be_guessed_and_have_a_path() -> None:
    """192 random bits, in characters that need no escaping."""
    ids = {make_id() for _ in range(1000)}
    assert len(ids) == 1000
    for each in ids:
        assert isinstance(find_ticket_endpoint("GET", f"/v1/tickets/{each}"), Endpoint)


@pytest.mark.parametrize(
    "path", ["/v1/tickets", "/v1/tickets/", "/v1/tickets/../models", "/v1/tickets/" + "a" * 33]
)
def test_other_paths_are_no_tickets(path: str) -> None:
    """Neither a list of tickets nor anything below one exists."""
    assert find_ticket_endpoint("GET", path) is None
    assert isinstance(find_endpoint("GET", path), Refused)


def test_tickets_are_fetched_and_deleted_only() -> None:
    """Other methods are told what works."""
    refused = find_ticket_endpoint("POST", f"/v1/tickets/{make_id()}")
    assert refused == Refused(status=405, allowed_methods=("DELETE", "GET"))


def test_no_credential_is_kept() -> None:
    """Only headers of a short list are kept, whatever others are called."""
    names = (
        *(b"authorization", b"x-api-key", b"api-key", b"cookie", b"proxy-authorization"),
        *(b"x-tenant", b"x-giveway-tenant", b"idempotency-key", b"prefer", b"x-goog-api-key"),
    )
    secrets = dict.fromkeys(names, b"sk-secret")
    fields = {**secrets, b"content-type": b"application/json", b"x-giveway-class": b"batch"}
    assert keep_fields(fields, name=b"req-1") == {
        b"content-type": b"application/json",
        b"x-giveway-class": b"batch",
        b"x-request-id": b"req-1",
    }


def test_answer_is_kept_without_its_framing_and_without_what_held_for_the_moment() -> None:
    """The body's bytes stay, line ends and all."""
    body = b'{"a":\r\n\r\n1}'
    answer = split_answer(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n"
        b"x-ratelimit-remaining-requests: 3\r\nX-Giveway-Class: batch\r\n"
        b"Connection: close\r\n\r\n" + body
    )
    assert (answer.status, answer.reason, answer.body) == (200, b"OK", body)
    assert b"x-ratelimit" in answer.lines
    assert answer.lasting().lines == (
        b"Content-Type: application/json\r\nX-Giveway-Class: batch\r\nCache-Control: no-store\r\n"
    )
    assert answer.lasting().body == body


@pytest.mark.parametrize(
    ("outcome", "engine_up", "status"),
    [
        (Outcome.COMPLETED, True, TicketStatus.COMPLETED),
        (Outcome.ENGINE_REFUSED, True, TicketStatus.FAILED),
        (Outcome.QUEUE_TIMEOUT, True, TicketStatus.EXPIRED),
        (Outcome.ENGINE_UNAVAILABLE, False, TicketStatus.EXPIRED),
        (Outcome.ENGINE_UNAVAILABLE, True, TicketStatus.FAILED),
        (Outcome.ENGINE_FAILED, True, TicketStatus.FAILED),
        (Outcome.ENGINE_TIMEOUT, True, TicketStatus.FAILED),
    ],
)
def test_every_end_has_a_status(outcome: Outcome, engine_up: bool, status: TicketStatus) -> None:
    """Completed, failed and expired are told apart."""
    assert final_status(outcome, engine_up=engine_up) is status
    assert not status.is_open


def test_hints_grow_with_the_waiting() -> None:
    """Often at first, rarely later: 4 s old is asked again after 1 s, an hour after 30 s."""
    assert [retry_hint_s(age_s) for age_s in (0.0, 4.0, 40.0, 3600.0)] == [1.0, 1.0, 10.0, 30.0]


def test_a_ticket_is_described_in_json() -> None:
    """What the documentation promises, and whole seconds."""
    told = json.loads(describe("id", TicketStatus.QUEUED, created_s=12.7, expires_s=20.2))
    assert told == {
        "id": "id",
        "object": "ticket",
        "status": "queued",
        "created_at": 12,
        "expires_at": 20,
    }
    assert re.fullmatch("[a-z]+", TicketStatus.CANCELLED.value)
