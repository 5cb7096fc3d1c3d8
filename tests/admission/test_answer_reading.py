"""What is read of which answer?

Real answers of vLLM (`tests/support/transcripts`), the Rust frontend's form of them, and answers of
engines that lie, fail, or stop half-way.
"""

import json
from collections.abc import Sequence

import pytest
from giveway_admission.answer_reading import LONGEST_LINE_BYTES, AnswerReader
from giveway_admission.endpoints import ENDPOINTS, Endpoint
from giveway_scheduler import Usage
from hypothesis import given
from hypothesis import strategies as st

from tests.support import recordings
from tests.support.cutting import cut, places

CHAT = ENDPOINTS["/v1/chat/completions"]
COMPLETIONS = ENDPOINTS["/v1/completions"]
RESPONSES = ENDPOINTS["/v1/responses"]
MESSAGES = ENDPOINTS["/v1/messages"]
EMBEDDINGS = ENDPOINTS["/v1/embeddings"]

Summary = tuple[bool, int, Usage | None, bool, bool]
"""First token seen, events, usage, failed, finished."""


def _endpoint(transcript: str) -> Endpoint:
    return {
        "chat": CHAT,
        "completions": COMPLETIONS,
        "responses": RESPONSES,
        "messages": MESSAGES,
        "embeddings": EMBEDDINGS,
    }[transcript.split("-")[0]]


def _reader(endpoint: Endpoint, *, streams: bool = True) -> AnswerReader:
    return AnswerReader(endpoint, streams=streams, status=200, encoded=False)


def _read(endpoint: Endpoint, pieces: Sequence[bytes], *, streams: bool = True) -> Summary:
    reader = _reader(endpoint, streams=streams)
    for piece in pieces:
        reader.feed(piece)
    reader.end()
    return (
        reader.first_token_seen,
        reader.events,
        reader.usage,
        reader.failed,
        reader.finished,
    )


def _chat(delta: dict[str, object] | None, finish: str | None = None, **more: object) -> bytes:
    event: dict[str, object] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", **more}
    if delta is not None:
        event["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
ROLE = _chat({"role": "assistant", "content": ""})
TOKENS = [_chat({"content": text}) for text in (" a", ' "q" \\', "你好", ": [DONE]", ' "usage":{}')]
USAGE = _chat(None, choices=[], usage={"prompt_tokens": 9, "completion_tokens": 5})


def _sparse(fields: str) -> bytes:
    begin = 'data: {"id":"chatcmpl-1a2b3c4d","object":"chat.completion.chunk","choices":['
    return f"{begin}{fields}}}\n\n".encode()


RUST = b"".join(
    [
        _sparse('{"index":0,"delta":{"role":"assistant"}}]'),
        _sparse('{"index":0,"delta":{"content":" a"}}]'),
        _sparse('{"index":0,"delta":{"content":" b"}}]'),
        _sparse('{"index":0,"delta":{"content":" c"}}]'),
        _sparse('{"index":0,"delta":{},"finish_reason":"length"}]'),
        _sparse('],"usage":{"prompt_tokens":4,"total_tokens":7,"completion_tokens":3}'),
        DONE,
    ]
)
"""The sparse dialect of vLLM's Rust frontend: the end comes in an empty delta of its own."""

TOOL_CALL = b"".join(
    [
        ROLE,
        _chat({"tool_calls": [{"index": 0, "id": "x", "function": {"name": "f"}}]}),
        _chat({"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}),
        _chat({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
        _chat({}, "tool_calls"),
        USAGE,
        DONE,
    ]
)

KEEP_ALIVES = b": keep-alive\n\n" + ROLE + b": keep-alive\n\n".join(TOKENS) + USAGE + DONE

BROKEN = [
    ROLE + b"".join(TOKENS),
    ROLE + TOKENS[0] + b'data: {"error":{"message":"broken","code":500}}\n\n' + DONE,
    ROLE + TOKENS[0] + _chat({"content": ""}, "abort") + DONE,
    b"data: {]}\n\ndata: 5\n\ndata:\n\nid: 7\n\n" + ROLE + TOKENS[0] + DONE,
    b"\n\n\n" + ROLE + b"\r\n" + TOKENS[0],
]

SIX_TOKENS = Usage(prompt_tokens=21, output_tokens=6)

RECORDED: dict[str, Summary] = {
    "chat-plain": (True, 0, SIX_TOKENS, False, True),
    "chat-stream": (True, 5, None, False, True),
    "chat-stream-usage": (True, 5, SIX_TOKENS, False, True),
    "chat-stream-continuous-usage": (True, 6, SIX_TOKENS, False, True),
    "chat-two-answers-stream-usage": (True, 6, SIX_TOKENS, False, True),
    "completions-plain": (True, 0, Usage(prompt_tokens=5, output_tokens=6), False, True),
    "completions-stream-usage": (True, 6, Usage(prompt_tokens=5, output_tokens=6), False, True),
    "embeddings": (True, 0, Usage(prompt_tokens=8), False, True),
    "messages-plain": (True, 0, SIX_TOKENS, False, True),
    "messages-stream": (True, 6, SIX_TOKENS, False, True),
    "responses-plain": (True, 0, SIX_TOKENS, False, True),
    "responses-stream": (True, 2, SIX_TOKENS, False, True),
}

STREAMS: list[tuple[Endpoint, bytes]] = [
    *(
        (_endpoint(name), recordings.answer(name).body)
        for name in recordings.names()
        if "-stream" in name
    ),
    *((CHAT, body) for body in (RUST, TOOL_CALL, KEEP_ALIVES, *BROKEN)),
]


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_real_answer_is_read(name: str) -> None:
    """Every recorded answer of vLLM: usage as it says, first token, end (A12, B01, B06)."""
    answer = recordings.answer(name)
    summary = _read(_endpoint(name), [answer.body], streams="-stream" in name)
    assert summary == RECORDED[name]


def test_every_recorded_answer_is_in_the_table() -> None:
    """A new recording gets an expectation; errors and lists of models have nothing to read."""
    unread = {name for name in recordings.names() if not name.startswith(("error", "models"))}
    assert unread == set(RECORDED)


@pytest.mark.parametrize("number", range(len(STREAMS)))
def test_all_at_once_equals_byte_by_byte(number: int) -> None:
    """Cuts change nothing, in every dialect (A10, A12)."""
    endpoint, body = STREAMS[number]
    expected = _read(endpoint, [body])
    assert _read(endpoint, [body[at : at + 1] for at in range(len(body))]) == expected
    assert _read(endpoint, body.splitlines(keepends=True)) == expected
    events = [event + b"\n\n" for event in body.split(b"\n\n")]
    events[-1] = events[-1][:-2]
    for size in (1, 2, 3):
        groups = [b"".join(events[at : at + size]) for at in range(0, len(events), size)]
        assert _read(endpoint, groups) == expected


@given(st.sampled_from(STREAMS), st.lists(st.booleans(), min_size=1, max_size=8))
def test_events_in_one_piece_are_all_read(stream: tuple[Endpoint, bytes], cuts: list[bool]) -> None:
    """Events that came together, in any groups: none is taken for part of another (A12)."""
    endpoint, body = stream
    pieces = [b""]
    for number, line in enumerate(body.splitlines(keepends=True)):
        pieces[-1] += line
        if cuts[number % len(cuts)]:
            pieces.append(b"")
    assert _read(endpoint, pieces) == _read(endpoint, [body])


def test_an_event_behind_an_unfinished_line_is_part_of_it() -> None:
    """However much the piece looks like an event of its own."""
    reader = _reader(CHAT)
    for piece in (ROLE, TOKENS[0], TOKENS[0], b": a comment, not yet ended; ", TOKENS[0]):
        reader.feed(piece)
    assert reader.events == 2


@given(st.sampled_from(STREAMS), places)
def test_cuts_anywhere_change_nothing(stream: tuple[Endpoint, bytes], at: list[int]) -> None:
    """The same, for cuts at random."""
    endpoint, body = stream
    assert _read(endpoint, cut(body, at)) == _read(endpoint, [body])


@given(
    st.sampled_from([name for name in RECORDED if "-stream" not in name]),
    places,
)
def test_cuts_in_a_document_change_nothing(name: str, at: list[int]) -> None:
    """The same, for answers that do not stream."""
    body = recordings.answer(name).body
    assert _read(_endpoint(name), cut(body, at), streams=False) == RECORDED[name]


@given(st.sampled_from(STREAMS))
def test_lines_may_end_with_cr_lf(stream: tuple[Endpoint, bytes]) -> None:
    """Other servers write CRLF."""
    endpoint, body = stream
    assert _read(endpoint, [body.replace(b"\n", b"\r\n")]) == _read(endpoint, [body])


def test_the_rust_frontend_is_understood() -> None:
    """Three tokens, an end in an event without output, usage."""
    usage = Usage(prompt_tokens=4, output_tokens=3)
    assert _read(CHAT, [RUST]) == (True, 3, usage, False, True)


def test_text_that_looks_like_markers_is_text() -> None:
    """`[DONE]`, quotes and `"usage"` in the model's own words are output."""
    expected = (True, 5, Usage(prompt_tokens=9, output_tokens=5), False, True)
    assert _read(CHAT, [ROLE, *TOKENS, USAGE, DONE]) == expected
    assert _read(CHAT, [KEEP_ALIVES]) == expected


def test_tool_calls_and_reasoning_are_output() -> None:
    """Whatever the delta brings besides its role."""
    assert _read(CHAT, [TOOL_CALL])[1] == 3
    reasoning = [_chat({"reasoning": text}) for text in (" because", " of")]
    assert _read(CHAT, [ROLE, *reasoning, DONE])[:2] == (True, 2)


@pytest.mark.parametrize(
    ("endpoint", "before", "first"),
    [
        (CHAT, [b": keep-alive\n\n", b"retry: 5\n\n", b"data: {}\n\n"], ROLE),
        (CHAT, [], TOKENS[0]),
        (CHAT, [b": keep-alive\n\n"], _chat({"content": ""}, "stop")),
        (
            RESPONSES,
            [
                b'event: response.created\ndata: {"type":"response.created","response":{}}\n\n',
                b'event: response.in_progress\ndata: {"type":"response.in_progress"}\n\n',
            ],
            b'event: response.output_item.added\ndata: {"type":"response.output_item.added"}\n\n',
        ),
        (
            MESSAGES,
            [
                b'data: {"type":"message_start","message":{"usage":{"input_tokens":3}}}\n\n',
                b'event: ping\ndata: {"type":"ping"}\n\n',
            ],
            b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{}}\n\n',
        ),
    ],
)
def test_the_first_token_is_output_and_nothing_before(
    endpoint: Endpoint, before: list[bytes], first: bytes
) -> None:
    """Headers, comments and events that a queued request gets are no token."""
    reader = _reader(endpoint)
    for event in before:
        reader.feed(event)
        assert not reader.first_token_seen
    reader.feed(first[:-2])
    assert not reader.first_token_seen, "the line has not ended"
    reader.feed(first[-2:])
    assert reader.first_token_seen


def test_running_totals_are_not_added_up() -> None:
    """50 events with totals so far: the last one counts (B03)."""
    events = [
        _chat({"content": "x"}, usage={"prompt_tokens": 10, "completion_tokens": count})
        for count in range(1, 51)
    ]
    reader = _reader(CHAT)
    for count, event in enumerate(events, start=1):
        reader.feed(event)
        assert reader.usage == Usage(prompt_tokens=10, output_tokens=count)
    assert reader.events == 50


@pytest.mark.parametrize(
    "events",
    [
        [ROLE, TOKENS[0], b'data: {"error":{"message":"x","code":500}}\n\n', DONE],
        [ROLE, TOKENS[0], b'data: {"error":"x"}\n\n', DONE],
        [ROLE, TOKENS[0], _chat({"content": ""}, "abort"), DONE],
        [ROLE, TOKENS[0], _chat({}, "error"), DONE],
        [ROLE, TOKENS[0]],
        [b""],
    ],
)
def test_a_chat_that_breaks_has_failed(events: list[bytes]) -> None:
    """An error in the stream, "abort" at a shutdown, an end without an end (A22)."""
    assert _read(CHAT, events)[3]


@pytest.mark.parametrize(
    ("endpoint", "body", "failed"),
    [
        (MESSAGES, b'event: error\ndata: {"type":"error","error":{"type":"x"}}\n\n', True),
        (
            MESSAGES,
            b'data: {"type":"message_delta","delta":{}}\n\ndata: {"type":"message_stop"}\n\n',
            True,
        ),
        (
            MESSAGES,
            b'data:{"type":"message_delta","delta":{"stop_reason":"x"}}\ndata:{"type":"message_stop"}',
            False,
        ),
        (RESPONSES, b'data: {"type":"response.failed","response":{}}\n\n', True),
        (RESPONSES, b'data: {"type":"error","message":"x"}\n\n', True),
        (RESPONSES, b'data: {"type":"response.output_text.delta","delta":"x"}\n\n', True),
        (RESPONSES, b'data: {"type":"response.incomplete","response":{}}\n\n', False),
    ],
)
def test_other_dialects_say_failure_in_their_own_way(
    endpoint: Endpoint, body: bytes, *, failed: bool
) -> None:
    """Anthropic's and the Responses API's."""
    assert _read(endpoint, [body])[3] is failed


@pytest.mark.parametrize(
    ("endpoint", "document", "failed"),
    [
        (CHAT, {"choices": [{"finish_reason": "abort"}]}, True),
        (CHAT, {"choices": [{"finish_reason": "stop"}]}, False),
        (CHAT, {"choices": [{"finish_reason": ["abort"]}]}, False),
        (CHAT, {"error": {"message": "x"}}, True),
        (MESSAGES, {"type": "message", "stop_reason": None}, True),
        (MESSAGES, {"type": "message", "stop_reason": "end_turn"}, False),
        (RESPONSES, {"status": "failed"}, True),
        (RESPONSES, {"status": "incomplete", "error": None}, False),
    ],
)
def test_a_document_tells_of_failure_after_a_good_status(
    endpoint: Endpoint, document: object, *, failed: bool
) -> None:
    """vLLM answers a plain request 200 with "abort" when it shuts down."""
    assert _read(endpoint, [json.dumps(document).encode()], streams=False)[3] is failed


def test_usage_is_found_at_the_end_of_a_long_document() -> None:
    """10 MB of answer: two ends of 64 KiB are enough, and all that is kept."""
    document = json.dumps(
        {
            "choices": [{"text": "\\" * 10_000_000, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
            "kv_transfer_params": None,
        }
    ).encode()
    usage = Usage(prompt_tokens=3, output_tokens=4)
    for size in (len(document), 65_536, 1_000_003):
        pieces = [document[at : at + size] for at in range(0, len(document), size)]
        assert _read(CHAT, pieces, streams=False) == (True, 0, usage, False, True)


def test_a_long_document_that_was_aborted_has_failed() -> None:
    """The same, seen in its tail."""
    document = json.dumps({"choices": [{"text": "x" * 300_000, "finish_reason": "abort"}]}).encode()
    assert _read(CHAT, [document], streams=False)[3]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff\x00", b'{"usage":', b"[" * 100_000, b'{"usage":[]}']
)
def test_a_document_that_makes_no_sense_says_nothing(body: bytes) -> None:
    """No usage, and no exception."""
    assert _read(CHAT, [body], streams=False)[2] is None


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_can_be_fed(pieces: list[bytes]) -> None:
    """Streams and documents of nonsense, in every dialect."""
    for endpoint in (CHAT, RESPONSES, MESSAGES, EMBEDDINGS):
        for streams in (True, False):
            assert _read(endpoint, pieces, streams=streams)[2] is None


def test_an_unread_answer_shows_only_that_it_began() -> None:
    """A compressed body, or one with an error's status."""
    for status, encoded in ((200, True), (400, False), (503, False)):
        reader = AnswerReader(CHAT, streams=True, status=status, encoded=encoded)
        assert not reader.first_token_seen
        reader.feed(ROLE + TOKENS[0] + USAGE)
        reader.end()
        assert reader.first_token_seen
        assert (reader.events, reader.usage, reader.failed) == (0, None, False)


def test_an_endless_line_is_not_kept() -> None:
    """Memory stays bounded, and the stream after it is read."""
    reader = _reader(CHAT)
    reader.feed(ROLE + TOKENS[0])
    reader.feed(b'data: {"x":"')
    for _ in range(4 * LONGEST_LINE_BYTES // 65_536):
        reader.feed(b"x" * 65_536)
    reader.feed(b"x" * (LONGEST_LINE_BYTES + 1))
    reader.feed(TOKENS[0])
    reader.feed(ROLE + TOKENS[0] + USAGE + DONE)
    reader.end()
    assert reader.usage == Usage(prompt_tokens=9, output_tokens=5)
    assert reader.events == 2, "what stands in the endless line is no event"


def test_what_is_charged_is_reported_or_else_counted() -> None:
    """A stream that was cut before its usage: our estimate and the events that came (C04)."""
    reader = _reader(CHAT)
    for piece in (ROLE, *TOKENS):
        reader.feed(piece)
    assert reader.charge(prompt_tokens=77) == Usage(prompt_tokens=77, output_tokens=5)
    reader.feed(USAGE)
    assert reader.charge(prompt_tokens=77) == Usage(prompt_tokens=9, output_tokens=5)


def test_a_cut_message_is_charged_its_reported_prompt() -> None:
    """Anthropic's dialect says the prompt's tokens first, and the output's last."""
    body = recordings.answer("messages-stream").body
    reader = _reader(MESSAGES)
    reader.feed(body[: body.index(b"event: content_block_stop")])
    assert reader.usage is None
    assert reader.charge(prompt_tokens=99) == Usage(prompt_tokens=21, output_tokens=6)
