"""What is read of which body?"""

import json

import pytest
from giveway_admission.endpoints import ENDPOINTS, BodyKind, Endpoint
from giveway_admission.request_reading import (
    LARGEST_ANSWERS,
    LARGEST_OUTPUT_TOKENS,
    InvalidRequestError,
    RequestFacts,
    read_request,
    with_priority,
    with_usage_asked,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.support.json_texts import objects, values

CHAT = ENDPOINTS["/v1/chat/completions"]
COMPLETIONS = ENDPOINTS["/v1/completions"]
RESPONSES = ENDPOINTS["/v1/responses"]
MESSAGES = ENDPOINTS["/v1/messages"]
EMBEDDINGS = ENDPOINTS["/v1/embeddings"]
WITH_JSON = [endpoint for endpoint in ENDPOINTS.values() if endpoint.body is BodyKind.JSON]


def _read(endpoint: Endpoint, fields: object) -> RequestFacts:
    return _read_bytes(endpoint, json.dumps(fields, ensure_ascii=False).encode())


def _read_bytes(endpoint: Endpoint, body: bytes) -> RequestFacts:
    return read_request(endpoint, body, complete=True, content_length=len(body))


def _user(content: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": content}]}


def test_an_ordinary_chat_request_is_read() -> None:
    """All that admission needs of a usual body."""
    facts = _read(
        CHAT, {"model": "m", "stream": True, "max_tokens": 200, "n": 2, **_user("word " * 400)}
    )
    assert facts.model == "m"
    assert facts.streams
    assert facts.answers == 2
    assert facts.maximum_output_tokens == 2 * 200
    assert facts.prompt_tokens == pytest.approx(400 * 5 / 4, rel=0.05)
    assert facts.can_ask_usage
    assert not facts.usage_asked
    assert not facts.priority_in_body


@pytest.mark.parametrize(
    ("endpoint", "fields", "expected"),
    [
        (CHAT, {"max_tokens": 7}, 7),
        (CHAT, {"max_completion_tokens": 9, "max_tokens": 7}, 9),
        (CHAT, {"max_completion_tokens": None, "max_tokens": 7}, 7),
        (CHAT, {"max_output_tokens": 7}, None),
        (CHAT, {}, None),
        (CHAT, {"max_tokens": "17"}, 17),
        (CHAT, {"max_tokens": 17.0}, 17),
        (CHAT, {"max_tokens": 17, "n": 3}, 51),
        (COMPLETIONS, {"prompt": "x"}, 16),
        (COMPLETIONS, {"prompt": "x", "max_tokens": None}, None),
        (COMPLETIONS, {"prompt": ["x", "y"], "max_tokens": 5, "n": 3}, 30),
        (RESPONSES, {"max_output_tokens": 11, "max_tokens": 3}, 11),
        (MESSAGES, {"max_tokens": 12}, 12),
        (EMBEDDINGS, {"input": "x", "max_tokens": 12}, 0),
        (ENDPOINTS["/tokenize"], {"prompt": "x"}, 0),
    ],
)
def test_the_bound_on_output_is_found(
    endpoint: Endpoint, fields: dict[str, object], expected: int | None
) -> None:
    """Each dialect's own name for it, times the answers (B06, B23)."""
    assert _read(endpoint, fields).maximum_output_tokens == expected


@pytest.mark.parametrize(
    "absurd", [-1, 0, "many", "", [], {}, 0.5, 1e300, 10**18, True, None, "9" * 400, 10**300]
)
@pytest.mark.parametrize("field", ["max_tokens", "n", "best_of"])
def test_absurd_numbers_neither_crash_nor_gain_anything(field: str, absurd: object) -> None:
    """The engine refuses them; until then they count as not given, or as the largest credible."""
    facts = _read(COMPLETIONS, {"prompt": "x", "max_tokens": 16, field: absurd})
    assert 1 <= facts.answers <= LARGEST_ANSWERS
    assert facts.maximum_output_tokens is None or (
        1 <= facts.maximum_output_tokens <= LARGEST_OUTPUT_TOKENS
    )


@pytest.mark.parametrize(
    ("prompt", "tokens", "answers"),
    [
        ("x" * 400, 100, 1),
        (["x" * 400] * 8, 800, 8),
        ([1] * 70, 70, 1),
        ([[1] * 70, [2] * 30], 100, 2),
        ([], 1, 1),
        ("", 1, 1),
        (None, 1, 1),
        ([[], []], 1, 2),
        (7, 1, 1),
    ],
)
def test_prompts_are_counted_by_their_form(prompt: object, tokens: int, answers: int) -> None:
    """Text by its bytes, token ids exactly, lists multiplied out; unknown is small (B08, B23)."""
    facts = _read(COMPLETIONS, {"prompt": prompt})
    assert facts.prompt_tokens == tokens
    assert facts.answers == answers
    assert _read(EMBEDDINGS, {"input": prompt}).prompt_tokens == tokens


def test_best_of_counts_if_it_is_more_than_n() -> None:
    """The engine generates best_of answers and gives n of them (B23)."""
    facts = _read(COMPLETIONS, {"prompt": ["a", "b"], "n": 2, "best_of": 5, "max_tokens": 10})
    assert facts.answers == 2 * 5
    assert facts.maximum_output_tokens == 2 * 5 * 10


def test_a_ranking_reads_its_query_with_each_document() -> None:
    """10 documents of 100 tokens and 10 x the query of 50."""
    facts = _read(ENDPOINTS["/v1/rerank"], {"query": "q" * 200, "documents": ["d" * 400] * 10})
    assert facts.prompt_tokens == 10 * 100 + 10 * 50
    assert facts.answers == 10


@pytest.mark.parametrize(
    ("fields", "usage_asked", "can_ask"),
    [
        ({"stream": True}, False, True),
        ({"stream": True, "stream_options": None}, False, True),
        ({"stream": True, "stream_options": {"include_usage": False}}, False, True),
        ({"stream": True, "stream_options": {"include_usage": True}}, True, False),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, False, False),
        ({"stream": True, "stream_options": "x"}, False, False),
        ({"stream": "true"}, False, True),
        ({"stream": False, "stream_options": {"include_usage": True}}, False, False),
        ({"stream": None}, False, False),
        ({}, False, False),
    ],
)
def test_usage_is_asked_for_only_where_nobody_sees_a_difference(
    fields: dict[str, object], usage_asked: bool, can_ask: bool
) -> None:
    """Streams of which the client did not ask for usage itself (A25)."""
    for endpoint in (CHAT, COMPLETIONS):
        facts = _read(endpoint, fields)
        assert (facts.usage_asked, facts.can_ask_usage) == (usage_asked, can_ask)
    for endpoint in (RESPONSES, MESSAGES, EMBEDDINGS):
        assert not _read(endpoint, fields).can_ask_usage


@pytest.mark.parametrize(
    ("text", "streams"),
    [("true", True), ("1", True), ('"yes"', True), ("1.0", True), ("false", False), ("0", False),
     ('"no"', False), ("null", False), ("[]", False), ("{}", False), ("2", False)],
)  # fmt: skip
def test_stream_is_read_as_the_engine_reads_it(text: str, streams: bool) -> None:
    """pydantic's lenient booleans."""
    assert _read_bytes(CHAT, b'{"stream":%s}' % text.encode()).streams is streams


def test_the_last_of_equal_keys_counts() -> None:
    """As in the engine's own reading, so that a second key hides nothing."""
    body = b'{"max_tokens":1,"stream":false,"max_tokens":900,"stream":true}'
    facts = _read_bytes(CHAT, body)
    assert facts.maximum_output_tokens == 900
    assert facts.streams


def test_an_escaped_key_is_the_same_key() -> None:
    """`\\u0070riority` is `priority` for the engine, and so for us."""
    assert _read_bytes(CHAT, b'{"\\u0070riority":5}').priority_in_body
    assert not _read_bytes(CHAT, b'{"metadata":{"priority":5}}').priority_in_body


def test_background_responses_are_refused() -> None:
    """They would go on at the engine after their seat was given back."""
    with pytest.raises(InvalidRequestError) as caught:
        _read(RESPONSES, {"input": "x", "background": True})
    assert caught.value.param == "background"
    assert _read(RESPONSES, {"input": "x", "background": False}).prompt_tokens == 1


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"[]", b"null", b"1", b'"x"', b"{", b'{"a":}', b"{'a':1}", b'{"a":1,}',
        b'{"a":1} x', b'\xff\xfe{"a":1}', b'{"a":"\xff"', '{"a":1}'.encode("utf-16"),
        '{"a":1}'.encode("utf-32-le"), b"\x00", b"model=x&stream=true",
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    """400 with a reason, in every dialect."""
    for endpoint in WITH_JSON:
        with pytest.raises(InvalidRequestError) as caught:
            _read_bytes(endpoint, body)
        assert caught.value.message


@pytest.mark.parametrize(
    "body",
    [
        b'{"temperature":NaN,"max_tokens":5}',
        b'{"logit_bias":{"1":-Infinity},"max_tokens":5}',
        b'{"stop":"\\ud800","max_tokens":5}',
        b'\xef\xbb\xbf{"max_tokens":5}',
        b'{"messages":[{"role":"user","content":"\\udfff [x]"}],"max_tokens":5}',
        b'{"messages":[{"role":"user","content":["a",NaN]}],"max_tokens":5}',
        b'{"messages":[{"role":"user","content":[' + b"9" * 4000 + b']}],"max_tokens":5}',
    ],
)
def test_what_pythons_json_takes_is_taken(body: bytes) -> None:
    """vLLM reads with Python's json, which is more lenient than the standard."""
    assert _read_bytes(CHAT, body).maximum_output_tokens == 5


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"x":' + b"[" * 120_000 + b"]" * 120_000 + b"}",
        b'{"tools":' + b'{"a":' * 40_000 + b"1" + b"}" * 40_000 + b"}",
        b'{"messages":' + b"[" * 250_000,
        b'{"metadata":' + b'{"a":' * 50_000,
    ],
)
def test_deep_nesting_is_refused_cleanly(body: bytes) -> None:
    """Never a RecursionError, and no stack is used up (G11)."""
    for endpoint in (CHAT, COMPLETIONS, RESPONSES, EMBEDDINGS):
        with pytest.raises(InvalidRequestError):
            _read_bytes(endpoint, body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"max_tokens":' + b"9" * 250_000 + b"}",
        b'{"messages":[' + b"9" * 250_000 + b"]}",
        b"{" + b",".join(b'"k%d":%d' % (i, i) for i in range(18_000)) + b"}",
        b'{"messages":[' + b",".join([b"[]"] * 80_000) + b"]}",
        b'{"messages":[' + b",".join([b'{"type":[]}'] * 20_000) + b"]}",
        b'{"prompt":[' + b",".join([b"1"] * 120_000) + b"]}",
    ],
)
def test_large_odd_bodies_are_read_or_refused(body: bytes) -> None:
    """Long numbers, many keys, many empty lists: facts or the one error (G11)."""
    for endpoint in WITH_JSON:
        try:
            facts = _read_bytes(endpoint, body)
        except InvalidRequestError as error:
            assert error.message  # noqa: PT017
        else:
            assert 1 <= facts.prompt_tokens <= len(body)


@given(st.one_of(st.binary(max_size=200), objects()))
def test_any_bytes_give_facts_or_the_one_error(body: bytes) -> None:
    """`read_request` is total, for whole bodies and for prefixes."""
    for endpoint in WITH_JSON:
        for complete in (True, False):
            try:
                facts = read_request(endpoint, body, complete=complete, content_length=10**6)
            except InvalidRequestError as error:
                assert error.message  # noqa: PT017
                continue
            assert facts.prompt_tokens >= 1
            assert facts.answers >= 1


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("model", "stream", "stream_options", "n", "best_of", "max_tokens", "messages"),
                *("prompt", "input", "tools", "documents", "query", "images", "text_1", "text_2"),
                *("service_tier", "instructions", "system", "priority", "background"),
            ]
        ),
        values,
        max_size=6,
    )
)
def test_known_fields_with_any_value_give_facts_or_the_one_error(fields: dict[str, object]) -> None:
    """No type of any field is unexpected."""
    body = json.dumps(fields).encode()
    for endpoint in WITH_JSON:
        try:
            facts = _read_bytes(endpoint, body)
        except InvalidRequestError as error:
            assert error.param == "background"  # noqa: PT017
            continue
        assert facts.prompt_tokens >= 1
        assert facts.priority_in_body is ("priority" in fields)
        if facts.can_ask_usage:
            changed = with_usage_asked(body)
            assert _read_bytes(endpoint, changed).usage_asked
        assert not _read_bytes(endpoint, with_priority(body, None)).priority_in_body


def test_a_long_body_is_judged_by_what_is_there() -> None:
    """A prefix gives the fields in it; the rest counts as text, up to a long context."""
    body = (
        b'{"model":"m","max_tokens":50,"stream":true,"messages":[{"content":"' + b"word " * 60_000
    )
    facts = read_request(CHAT, body[: 2**18], complete=False, content_length=len(body))
    assert facts.model == "m"
    assert facts.maximum_output_tokens == 50
    assert facts.streams
    assert facts.prompt_tokens == pytest.approx(len(body) / 4, rel=0.01)
    assert facts.priority_in_body, "one may still come"
    assert not facts.can_ask_usage
    longest = read_request(CHAT, body[: 2**18], complete=False, content_length=10**9)
    assert longest.prompt_tokens <= 2**18 // 4 + 131_072


def test_a_whole_body_that_is_long_is_judged_by_its_begin() -> None:
    """20 MB that would take seconds to read are looked at for 256 KiB (F12)."""
    body = b'{"model":"m","input":[' + b",".join([b"[]"] * 7_000_000) + b"]}"
    facts = _read_bytes(EMBEDDINGS, body)
    assert facts.model == "m"
    assert facts.prompt_tokens == pytest.approx(2**18 / 4 + 131_072, rel=0.01)
    assert facts.priority_in_body


def test_a_long_body_in_another_encoding_is_refused() -> None:
    """The engine would read UTF-16, and in it a priority that we had not replaced."""
    body = json.dumps({"priority": -5, "input": "x" * 2**18})
    for encoding in ("utf-16-le", "utf-16-be", "utf-16", "utf-32-le"):
        with pytest.raises(InvalidRequestError):
            _read_bytes(EMBEDDINGS, body.encode(encoding))


def test_a_long_body_whose_fields_come_last_is_taken_as_the_dearer() -> None:
    """Unknown: not streamed, no bound on output."""
    body = b'{"messages":[{"content":"' + b"x" * 2**18
    for endpoint in (CHAT, COMPLETIONS):
        facts = read_request(endpoint, body, complete=False, content_length=10**6)
        assert not facts.streams
        assert facts.maximum_output_tokens is None


def test_a_picture_in_a_long_body_is_not_text() -> None:
    """A data URL of 1.9 MB of which only the begin is there counts as a picture or two (B12)."""
    body = (
        b'{"messages":[{"role":"user","content":[{"type":"text","text":"what is this?"},'
        b'{"type":"image_url","image_url":{"url":"data:image/png;base64,' + b"iVBORw0K" * 2**15
    )
    facts = read_request(CHAT, body[: 2**18], complete=False, content_length=1_900_000)
    assert facts.prompt_tokens < 3000


def test_an_upload_is_estimated_by_its_length() -> None:
    """8 MB of sound: bounded, and without looking into it (A30)."""
    endpoint = ENDPOINTS["/v1/audio/transcriptions"]
    facts = read_request(endpoint, b"--x\r\n", complete=False, content_length=8_000_000)
    assert facts.prompt_tokens == 8_000_000 // 640
    huge = read_request(endpoint, b"--x\r\n", complete=False, content_length=10**12)
    assert huge.prompt_tokens == 32_768


def test_tokenizing_spends_no_tokens() -> None:
    """The engine's model does not run, so a long text costs as little as a short one."""
    for path in ("/tokenize", "/detokenize", "/v1/messages/count_tokens"):
        facts = _read(ENDPOINTS[path], {"prompt": "x" * 10_000, **_user("y" * 10_000)})
        assert facts.prompt_tokens == 1
        assert facts.maximum_output_tokens == 0


def test_a_long_name_is_not_kept() -> None:
    """A model's name or a tier of 6 KB is nobody's (G10)."""
    facts = _read(CHAT, {"model": "m" * 6000, "service_tier": "p" * 6000})
    assert facts.model is None
    assert facts.service_tier is None
