"""How many LLM tokens will a prompt be?

No tokenizer runs here: it would cost more than everything else the proxy does, and the engine
reports the true count at the end. The estimate has to be cheap, and close enough for admission.

- Text is counted in bytes of UTF-8, keys and punctuation of its JSON included: these stand for the
  tokens that the chat template puts around each message.
- Token ids are counted exactly.
- Pictures, sound and files count a fixed number each, however long their bytes are. They are known
  by their place in the message, so text that merely looks like a data URL counts as text.

Nothing recurses, so depth costs no stack. A text of very many pieces is not taken apart
(`text_skimming`): there text and media are told apart by their look.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from giveway_admission.estimates import Estimates, tokens_of_bytes
from giveway_admission.text_skimming import is_crowded, skim_prompts, skim_tokens

_IMAGE, _AUDIO, _VIDEO, _FILE = "image_tokens", "audio_tokens", "video_tokens", "file_tokens"

_MEDIA_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "image_url": _IMAGE,
        "input_image": _IMAGE,
        "image": _IMAGE,
        "image_pil": _IMAGE,
        "image_embeds": _IMAGE,
        "computer_screenshot": _IMAGE,
        "input_audio": _AUDIO,
        "audio_url": _AUDIO,
        "audio": _AUDIO,
        "audio_embeds": _AUDIO,
        "video_url": _VIDEO,
        "input_video": _VIDEO,
        "video": _VIDEO,
        "file": _FILE,
        "input_file": _FILE,
        "document": _FILE,
    }
)
"""Content part's `type`, or the key that holds it where parts have none -> field of `Estimates`."""

_DATA_URL_LENGTH = 1024
"""A string of at least this length that begins like a data URL, in a place where nobody knows what
stands there, is taken for media. Shorter ones are cheap to count as text."""

_PUNCTUATION_BYTES = 3
"""Quotes and a comma or colon."""

_SMALL_VALUE_BYTES = 4
"""A number, true, false or null, with its comma."""


def tokens_of_raw(raw: msgspec.Raw, estimates: Estimates) -> int:
    """Tokens of a JSON text: messages, tools, documents. 0 if it is absent or null.

    Raises what `msgspec.json.decode` raises.
    """
    text = bytes(raw)
    if not text or text == b"null":
        return 0
    if text.find(b"[", 1) < 0 and not _has_escapes(text):
        # No list inside: no content parts, so nothing but text (a list is what media stand in).
        return tokens_of_bytes(len(text), estimates)
    if is_crowded(text):
        return skim_tokens(text, estimates)
    return tokens_of_value(msgspec.json.decode(text), estimates)


def tokens_of_value(value: object, estimates: Estimates) -> int:
    """The same for a value that is decoded already."""
    text_bytes = media_tokens = 0
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            text_bytes += _text_length(item) + _PUNCTUATION_BYTES
        elif isinstance(item, list):
            stack += item
        elif isinstance(item, dict):
            key_bytes, tokens = _open_object(item, stack, estimates)
            text_bytes += key_bytes
            media_tokens += tokens
        else:
            text_bytes += _SMALL_VALUE_BYTES
    return tokens_of_bytes(text_bytes, estimates) + media_tokens


def prompts_of_raw(raw: msgspec.Raw, estimates: Estimates) -> tuple[int, int]:
    """(tokens of all prompts together, number of prompts) of a `prompt` or `input` field.

    Raises what `msgspec.json.decode` raises.
    """
    text = bytes(raw)
    if is_crowded(text):
        return skim_prompts(text, estimates)
    return prompts_of_value(msgspec.json.decode(text) if text else None, estimates)


def prompts_of_value(value: object, estimates: Estimates) -> tuple[int, int]:
    """The same for a value that is decoded already.

    A string is one prompt; a list of strings or of lists of ids is as many; a list of ids is one.
    """
    if isinstance(value, list) and value:
        if all(type(item) is int for item in value):
            return len(value), 1
        return sum(_one_prompt(item, estimates) for item in value), len(value)
    return _one_prompt(value, estimates), 1


def _one_prompt(value: object, estimates: Estimates) -> int:
    if isinstance(value, str):
        return tokens_of_bytes(_text_length(value), estimates)
    if isinstance(value, list) and all(type(item) is int for item in value):
        return len(value)
    return 0 if value is None else tokens_of_value(value, estimates)


def _open_object(
    item: dict[object, object], stack: list[object], estimates: Estimates
) -> tuple[int, int]:
    """Put what is text in an object on the stack; returns (bytes of its keys, tokens of media)."""
    kind = item.get("type")
    if isinstance(kind, str) and kind in _MEDIA_TYPES:
        source = item.get("source")
        if isinstance(source, dict) and source.get("type") in ("text", "content"):
            stack.append(source)  # a document that is written out
            return 0, 0
        return 0, _media_tokens(kind, estimates)
    key_bytes = media_tokens = 0
    for key, value in item.items():
        name = str(key)
        key_bytes += len(name) + _PUNCTUATION_BYTES
        if name in _MEDIA_TYPES and isinstance(value, (str, dict)):
            media_tokens += _media_tokens(name, estimates)
        elif name not in ("text", "content") and _is_data_url(value):
            media_tokens += estimates.image_tokens
        else:
            stack.append(value)
    return key_bytes, media_tokens


def _media_tokens(kind: str, estimates: Estimates) -> int:
    return int(getattr(estimates, _MEDIA_TYPES[kind]))


def _is_data_url(value: object) -> bool:
    return isinstance(value, str) and len(value) >= _DATA_URL_LENGTH and value.startswith("data:")


def _text_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _has_escapes(text: bytes) -> bool:
    """True if a character may be written as \\uXXXX, six bytes for what is one to three."""
    return text.find(b"\\") >= 0 and text.find(b"\\u") >= 0  # `in` takes four times as long
