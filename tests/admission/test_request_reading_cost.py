"""For how long may one body hold up everybody else?

Nothing else runs while a body is read, and it is read before any rate counts it. So no body may
cost much more than an ordinary one of the same length, whatever it is made of.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import pytest
from giveway_admission.body_splicing import LONGEST_SCANNED_BYTES
from giveway_admission.endpoints import ENDPOINTS, Endpoint
from giveway_admission.request_reading import (
    InvalidRequestError,
    read_request,
    with_priority,
    with_usage_asked,
)

if TYPE_CHECKING:
    from _typeshed import TraceFunction

PLACES = (
    ("/v1/chat/completions", b"messages"),
    ("/v1/chat/completions", b"stream_options"),
    ("/v1/chat/completions", b"x"),
    ("/v1/completions", b"prompt"),
    ("/v1/rerank", b"documents"),
)
CHANGED = (b"priority", b"stream_options", b"messages")

MOST_LINES = 60_000
"""Lines of Python for one body: about ten milliseconds of the slowest machine we know."""
MOST_RATIO = 6.0
"""Of the time that Python's json needs for an ordinary body of the same length."""


def filled(begin: bytes, unit: bytes, end: bytes) -> bytes:
    """As long as a body may be to be read as a whole."""
    return begin + unit * ((LONGEST_SCANNED_BYTES - len(begin) - len(end)) // len(unit)) + end


HALF = (LONGEST_SCANNED_BYTES - 40) // 2
VALUES: dict[str, bytes] = {
    "brackets": b"[" * HALF + b"]" * HALF,
    "brackets-open": b"[" * 2 * HALF,
    "objects-deep": b'{"a":' * (HALF // 3) + b"1" + b"}" * (HALF // 3),
    "objects-open": b'{"a":' * (HALF // 3),
    "deep-then-flat": b"[" * 90 + filled(b"[", b"[],", b"[]]" + b" " * 400) + b"]" * 90,
    "lists": filled(b"[", b"[],", b"[]]" + b" " * 60),
    "lists-not-closed": filled(b"[", b"[],", b"[]" + b" " * 60),
    "objects": filled(b"[", b"{},", b"{}]" + b" " * 60),
    "pairs": filled(b"[", b'{"a":1},', b"{}]" + b" " * 60),
    "numbers": filled(b"[", b"1,", b"1]" + b" " * 60),
    "lists-of-ids": filled(b"[", b"[1],", b"[1]]" + b" " * 60),
    "empty-texts": filled(b"[", b'"",', b'""]' + b" " * 60),
    "mixed": filled(b"[", b'"",[1],{},', b"1]" + b" " * 60),
    "not-a-number": filled(b"[NaN,", b"[],", b"[]]" + b" " * 60),
    "backslashes": filled(b'"', b"\\\\", b'"' + b" " * 60),
    "escapes": filled(b'"', b"\\u4f60", b'"' + b" " * 60),
    "data-urls": filled(b"[", b'"data:",', b'""]' + b" " * 60),
    "keys": b"{" + b",".join(b'"%x":1' % key for key in range(25_000)) + b"}",
    "numbers-open": filled(b"[", b"1,", b""),
    "spaces-open": filled(b"[", b" ", b""),
    "text-open": filled(b'["', b"text ", b""),
    "spaces": filled(b"[", b" ", b"]" + b" " * 60),
}
ORDINARY = json.dumps(
    {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Tell me something new. " * 3}]}
        ]
        * 1900,
    }
).encode()


def body_with(field: bytes, value: bytes) -> bytes:
    return b'{"%b":%b,"priority":1}' % (field, value)


def read(endpoint: Endpoint, body: bytes, *, complete: bool) -> None:
    length = len(body) if complete else 10**7
    with contextlib.suppress(InvalidRequestError):
        read_request(endpoint, body, complete=complete, content_length=length)


def change(body: bytes) -> None:
    for way in (with_usage_asked, lambda text: with_priority(text, None)):
        with contextlib.suppress(InvalidRequestError):
            way(body)


def works(value: bytes) -> Iterator[Callable[[], None]]:
    """All that may be done with a body, with this value in the places that matter."""
    for path, field in PLACES:
        for complete in (True, False):
            yield partial(read, ENDPOINTS[path], body_with(field, value), complete=complete)
    for field in CHANGED:
        yield partial(change, body_with(field, value))


def lines_of(work: Callable[[], None]) -> int:
    """How many lines of Python the work runs through."""
    lines = 0

    def trace(_frame: FrameType, event: str, _value: object) -> "TraceFunction":
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def cpu_s(work: Callable[[], None]) -> float:
    """The least of three runs."""
    times = []
    for _ in range(3):
        start_s = time.process_time()
        work()
        times.append(time.process_time() - start_s)
    return min(times)


def test_the_ordinary_body_is_as_long_as_the_others() -> None:
    """Or the ratios would say nothing."""
    assert 0.9 * LONGEST_SCANNED_BYTES < len(ORDINARY) < 1.1 * LONGEST_SCANNED_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_no_body_takes_many_steps(name: str) -> None:
    """Counted in lines of Python: reading as a whole, reading the first part, changing a field."""
    for work in works(VALUES[name]):
        assert lines_of(work) < MOST_LINES


@pytest.mark.alone
@pytest.mark.parametrize("name", VALUES)
def test_no_body_takes_much_longer_than_an_ordinary_one(name: str) -> None:
    """Against what Python's json needs for a chat of the same length, in the same run."""
    ordinary_s = cpu_s(lambda: json.loads(ORDINARY))
    for work in works(VALUES[name]):
        assert cpu_s(work) < MOST_RATIO * ordinary_s


def test_a_crowded_body_is_still_read() -> None:
    """Skimmed: model, stream and bounds as always, the prompt by its bytes."""
    endpoint = ENDPOINTS["/v1/chat/completions"]
    body = ORDINARY[:-1] + b',"stream":true,"max_tokens":7,"service_tier":"flex"}'
    facts = read_request(endpoint, body, complete=True, content_length=len(body))
    assert (facts.model, facts.streams, facts.maximum_output_tokens) == ("m", True, 7)
    assert facts.service_tier == "flex"
    assert facts.can_ask_usage
    assert not facts.priority_in_body
    assert facts.prompt_tokens == pytest.approx(len(body) / 4, rel=0.01)
    changed = json.loads(with_usage_asked(body.replace(b"something new", b"stream_options", 1)))
    assert changed["stream_options"] == {"include_usage": True}
    assert json.loads(with_priority(body[:-1] + b',"priority":-9}', None))["priority"] == 0


def test_token_ids_of_a_crowded_body_are_counted_exactly() -> None:
    """Long contexts of ids are ordinary: one prompt, several, and none at all."""
    endpoint = ENDPOINTS["/v1/completions"]
    for prompt, tokens, answers in (
        (list(range(30_000)), 30_000, 1),
        ([list(range(9_000)), list(range(7))], 9_007, 2),
        ([[1, 2, 3]] * 5_000, 15_000, 5_000),
        ([[1] * 6_000, [], [2]], 6_001, 3),
    ):
        body = json.dumps({"prompt": prompt}).encode()
        facts = read_request(endpoint, body, complete=True, content_length=len(body))
        assert (facts.prompt_tokens, facts.answers) == (tokens, answers)


def test_texts_of_a_crowded_body_are_counted() -> None:
    """6,000 prompts of 32 bytes, with quotes and commas in them."""
    texts = ['a "word", and one more, and some'] * 6_000
    body = json.dumps({"prompt": texts, "n": 2, "max_tokens": 3}).encode()
    endpoint = ENDPOINTS["/v1/completions"]
    facts = read_request(endpoint, body, complete=True, content_length=len(body))
    assert facts.answers == 2 * 6_000
    assert facts.maximum_output_tokens == 3 * 2 * 6_000
    assert facts.prompt_tokens == pytest.approx(6_000 * 32 / 4, rel=0.2)


def test_a_picture_in_a_crowded_body_is_a_picture() -> None:
    """Known by its look there: 120 KB of base64 count 1,024 tokens."""
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBO" * 30_000}}
    chat = [{"role": "user", "content": "a, b, c"}] * 2_000
    body = json.dumps({"messages": [*chat, {"role": "user", "content": [part]}]}).encode()
    facts = read_request(
        ENDPOINTS["/v1/chat/completions"], body, complete=True, content_length=len(body)
    )
    rest = json.dumps(chat)
    assert facts.prompt_tokens == pytest.approx(len(rest) / 4 + 1_024, rel=0.01)
