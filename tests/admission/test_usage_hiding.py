"""Does a client that did not ask for usage get the stream of an engine that was not asked?"""

import json
from collections.abc import Sequence

import pytest
from giveway_admission.usage_hiding import LONGEST_HELD_BYTES, UsageHider
from hypothesis import given
from hypothesis import strategies as st

from tests.support import recordings
from tests.support.cutting import cut, places

DONE = b"data: [DONE]\n\n"


def _event(fields: dict[str, object], end: str = "\n\n") -> bytes:
    return f"data: {json.dumps(fields, separators=(',', ':'))}{end}".encode()


def _token(text: str) -> bytes:
    return _event({"id": "1", "choices": [{"index": 0, "delta": {"content": text}}]})


USAGE = _event({"id": "1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}})

SEEN = [
    _token(" a"),
    _token(' "choices":[] '),
    _token("[]"),
    b": keep-alive\n\n",
    b"\n\n",
    b"\n",
    _event({"choices": [], "prompt_filter_results": []}),
    _event({"choices": [], "usage": {}, "error": {"message": "x"}}),
    _event({"choices": [{"delta": {"content": "[]"}}], "usage": {"prompt_tokens": 1}}),
    _event({"choices": [{"delta": {"tool_calls": []}}]}),
    b"data: []\n\n",
    b"data: {[]\n\n",
    b"event: x\ndata: {}\n\n",
    _token("x" * (LONGEST_HELD_BYTES + 100)),
    DONE,
]
"""Everything here reaches the client."""


def _filter(pieces: Sequence[bytes]) -> bytes:
    hider = UsageHider()
    return b"".join([*(hider.feed(piece) for piece in pieces), hider.end()])


@given(st.lists(st.sampled_from(SEEN), max_size=8), st.integers(0, 8), places)
def test_only_the_usage_event_is_missing(events: list[bytes], index: int, at: list[int]) -> None:
    """Byte for byte the same stream without it, in any cut (A12, A25)."""
    events = [event for event in events if event.endswith(b"\n\n")]
    whole = b"".join([*events[:index], USAGE, *events[index:]])
    assert _filter(cut(whole, at)) == b"".join(events)


@given(st.lists(st.sampled_from(SEEN), max_size=8), places)
def test_a_stream_without_usage_passes_as_it_is(events: list[bytes], at: list[int]) -> None:
    """Nothing else is ever touched."""
    body = b"".join(events)
    assert _filter(cut(body, at)) == body


@given(st.lists(st.sampled_from([_token(" a"), _token("[]"), DONE]), max_size=6), places)
def test_cr_lf_is_kept(events: list[bytes], at: list[int]) -> None:
    """The same with the other line ends."""
    seen = b"".join(events).replace(b"\n", b"\r\n")
    whole = seen + USAGE.replace(b"\n", b"\r\n")
    assert _filter(cut(whole, at)) == seen


@given(st.lists(st.sampled_from([event for event in SEEN if event.endswith(b"\n\n")]), max_size=6))
def test_a_complete_event_is_never_held_back(events: list[bytes]) -> None:
    """After each event the client has all of it, whatever it looks like."""
    hider = UsageHider()
    for event in events:
        assert hider.feed(event) == event


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_usage_event_without_its_blank_line_is_hidden_too(end: bytes) -> None:
    """An engine that closes right after it."""
    assert _filter([_token(" a"), USAGE[:-2] + end]) == _token(" a")


def test_an_unfinished_event_reaches_the_client_at_the_end() -> None:
    """DONE without its blank line, and a stream that was cut."""
    assert _filter([_token(" a"), DONE[:-2]]) == _token(" a") + DONE[:-2]
    assert _filter([_token(" a")[:-9]]) == _token(" a")[:-9]


def test_an_endless_event_is_passed_on_in_pieces() -> None:
    """No more than 64 KiB are ever held, and the usage event after it is still found."""
    hider = UsageHider()
    passed = hider.feed(b'data: {"choices":[{"text":"')
    sent = 0
    for _ in range(100):
        passed += hider.feed(b"x" * 4096)
        sent += 4096
        assert sent - len(passed) <= LONGEST_HELD_BYTES
    passed += hider.feed(b'"}]}\n')
    passed += hider.feed(b"\n" + USAGE + DONE)
    assert passed.endswith(b'"}]}\n\n' + DONE)
    assert USAGE not in passed


@given(places)
def test_a_long_event_passes_in_any_cut(at: list[int]) -> None:
    """Also one that would be hidden if it were shorter, and one that never ends."""
    usage = _event({"choices": [], "usage": {}, "x": "x" * LONGEST_HELD_BYTES})
    unfinished = b"data: " + b"y" * LONGEST_HELD_BYTES + b"\n"
    assert _filter(cut(usage + unfinished, at)) == usage + unfinished


@pytest.mark.parametrize(
    "name", [name for name in recordings.names() if name.endswith("stream-usage")]
)
def test_a_real_stream_loses_its_usage_event_alone(name: str) -> None:
    """What vLLM recorded with usage asked for: one event less, the rest untouched (A25)."""
    body = recordings.answer(name).body
    events = [event + b"\n\n" for event in body.split(b"\n\n")[:-1]]
    expected = b"".join(event for event in events if b'"choices":[]' not in event)
    assert len(expected) < len(body)
    assert _filter([body]) == expected
    assert _filter([body[at : at + 1] for at in range(len(body))]) == expected
    assert _filter(events) == expected
