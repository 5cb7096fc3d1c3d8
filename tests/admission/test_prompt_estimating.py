"""How many tokens is a prompt taken for?"""

import json

import msgspec
import pytest
from giveway_admission.estimates import DEFAULT_ESTIMATES, Estimates
from giveway_admission.prompt_estimating import (
    tokens_of_raw,
    tokens_of_value,
)


def _tokens(messages: object, *, ascii_only: bool = False) -> int:
    text = json.dumps(messages, ensure_ascii=ascii_only, separators=(",", ":"))
    return tokens_of_raw(msgspec.Raw(text.encode()), DEFAULT_ESTIMATES)


def _user(content: object) -> list[object]:
    return [{"role": "user", "content": content}]


def test_text_is_a_quarter_of_its_bytes() -> None:
    """4,000 bytes are 1,000 tokens, and a few for the message around them."""
    assert 1000 <= _tokens(_user("word " * 800)) <= 1010


def test_text_in_parts_counts_like_plain_text() -> None:
    """The careful way, for contents that are lists, agrees with the fast one."""
    plain = _tokens(_user("word " * 800))
    parts = _tokens(_user([{"type": "text", "text": "word " * 400}] * 2))
    assert parts == pytest.approx(plain, rel=0.03)


@pytest.mark.parametrize("text", ["你好世界" * 200, "naïve café " * 100, "🙂" * 200])
def test_escaped_text_counts_like_plain_text(text: str) -> None:
    """A client that writes \\uXXXX for each character has the same prompt."""
    plain = _tokens(_user(text))
    assert _tokens(_user(text), ascii_only=True) == pytest.approx(plain, rel=0.02, abs=2)
    assert plain >= len(text.encode()) // 4


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 2**21}}, 1024),
        ({"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}, 1024),
        ({"type": "input_image", "image_url": "data:image/png;base64," + "A" * 9000}, 1024),
        ({"type": "input_audio", "input_audio": {"data": "A" * 9000, "format": "wav"}}, 1024),
        ({"type": "audio_url", "audio_url": {"url": "data:audio/ogg;base64," + "A" * 9000}}, 1024),
        ({"type": "video_url", "video_url": {"url": "data:video/mp4;base64," + "A" * 9000}}, 8192),
        (
            {"type": "file", "file": {"file_data": "data:text/csv;base64," + "A" * 9000}},
            4096,
        ),
        ({"type": "input_file", "file_data": "A" * 9000}, 4096),
        ({"type": "image", "source": {"type": "base64", "data": "A" * 9000}}, 1024),
        ({"type": "document", "source": {"type": "base64", "data": "A" * 9000}}, 4096),
        ({"image_url": "data:image/png;base64," + "A" * 9000}, 1024),
        ({"whatever": "data:image/png;base64," + "A" * 9000}, 1024),
        (
            {
                "type": "tool_result",
                "content": [{"type": "image", "source": {"type": "base64", "data": "A" * 9000}}],
            },
            1024,
        ),
    ],
)
def test_media_count_per_item_and_not_by_their_bytes(part: object, tokens: int) -> None:
    """A picture of 2 MB is a picture; wherever the dialects put it (B12)."""
    with_words = _tokens(_user([{"type": "text", "text": "what do you see in this?"}, part]))
    assert tokens <= with_words <= tokens + 60
    assert _tokens(_user([part] * 3)) >= 3 * tokens


def test_text_that_looks_like_a_data_url_is_text() -> None:
    """Nobody gets a long prompt for the price of a picture by how it begins."""
    disguised = "data:text/plain;base64," + "word " * 8000
    assert _tokens(_user(disguised)) >= 10_000
    assert _tokens(_user([{"type": "text", "text": disguised}])) >= 10_000


def test_a_document_that_is_written_out_is_text() -> None:
    """Its words are what the engine reads."""
    part = {"type": "document", "source": {"type": "text", "data": "word " * 8000}}
    assert _tokens(_user([part])) >= 10_000


def test_tools_and_their_calls_count() -> None:
    """Whatever stands in messages is given to the model."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "x" * 4000}}
    assert _tokens([{"role": "assistant", "content": None, "tool_calls": [call]}]) >= 1000


def test_absent_and_null_are_nothing() -> None:
    """No messages, no tokens."""
    assert tokens_of_raw(msgspec.Raw(), DEFAULT_ESTIMATES) == 0
    assert tokens_of_raw(msgspec.Raw(b"null"), DEFAULT_ESTIMATES) == 0


def test_estimates_can_be_set() -> None:
    """Another tokenizer, another picture."""
    estimates = Estimates(bytes_per_token=2, image_tokens=7)
    assert tokens_of_value("x" * 97, estimates) == 50
    assert tokens_of_value({"type": "image_url"}, estimates) == 7


def test_depth_costs_no_stack() -> None:
    """A value that is far deeper than Python may recurse is counted."""
    value: object = "x"
    for _ in range(100_000):
        value = [value]
    assert tokens_of_value(value, DEFAULT_ESTIMATES) == 1
