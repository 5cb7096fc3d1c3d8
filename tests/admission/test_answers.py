"""What does a client hear when the answer is ours?"""

import json

import pytest
from giveway_admission.answers import REASONS, make_error
from giveway_admission.endpoints import ErrorDialect
from giveway_admission.outcomes import STATUS, Outcome


@pytest.mark.parametrize("outcome", list(STATUS))
def test_every_outcome_has_an_answer_in_both_dialects(outcome: Outcome) -> None:
    """C12: status and code are those of the outcomes' table, in the shape of each API."""
    openai = make_error(outcome, "why", param="messages")
    assert openai.status == STATUS[outcome]
    assert openai.status in REASONS
    error = json.loads(openai.body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["message"], error["code"]) == ("why", outcome.value)
    anthropic = json.loads(make_error(outcome, "why", dialect=ErrorDialect.ANTHROPIC).body)
    assert anthropic["type"] == "error"
    assert set(anthropic["error"]) == {"type", "message", "code"}
    assert anthropic["error"]["code"] == outcome.value


@pytest.mark.parametrize(
    ("wanted_s", "seconds", "milliseconds"),
    [
        *((0.0, 1, 1), (0.2, 1, 200), (1.0, 1, 1000), (1.001, 2, 1001), (59.5, 60, 59500)),
        *((4000.0, 60, 60000), (float("inf"), 60, 60000), (-1.0, 1, 1)),
    ],
)
def test_b20_retry_hints_are_whole_seconds_and_never_too_early(
    wanted_s: float, seconds: int, milliseconds: int
) -> None:
    """B20: rounded up, at least 1, at most 60, and the exact time beside it."""
    data = make_error(Outcome.RATE_LIMITED, "x", retry_after_s=wanted_s).encode()
    assert b"\r\nRetry-After: %d\r\n" % seconds in data
    assert b"\r\nretry-after-ms: %d\r\n" % milliseconds in data


def test_the_length_is_that_of_the_body() -> None:
    """A17: also with characters of more than one byte; the body may be left out for HEAD."""
    error = make_error(Outcome.INVALID_REQUEST, "häßlich")
    head, _, body = error.encode(close=True).partition(b"\r\n\r\n")
    assert b"\r\nContent-Length: %d\r\n" % len(body) in head + b"\r\n"
    assert head.endswith(b"\r\nConnection: close")
    assert error.encode(with_body=False).endswith(b"\r\n\r\n")


def test_an_error_inside_a_stream_is_one_event() -> None:
    """The body has no line end in it, so that it is one data line."""
    event = make_error(Outcome.EVICTED, "two\nlines").encode_event()
    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    assert event.count(b"\n") == 2
