"""What does a request ask for, as far as admission has to know?

`read_request` is total: for any bytes it returns facts or raises `InvalidRequestError`, in time
linear in their length. It judges no values: whatever the engine would refuse (a negative
`max_tokens`, a `temperature` of "hot") passes, counts as not given, and is refused by the engine.

Values are read as leniently as vLLM's pydantic models do ("true", "17", 17.0), since what counts is
what the engine will understand. Of several equal keys the last one counts, as in Python's json.

A body that is not at hand as a whole (`complete` false) is judged by its prefix and its length.
What is not known of it is taken as the dearer or the slower: not streamed, so that its prompt
counts as work until the answer's end; no bound on its output.
"""

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from giveway_admission import body_splicing
from giveway_admission.body_splicing import MalformedBodyError
from giveway_admission.endpoints import BodyKind, Dialect, Endpoint
from giveway_admission.prompt_estimating import (
    DEFAULT_ESTIMATES,
    Estimates,
    prompts_of_value,
    tokens_of_bytes,
    tokens_of_raw,
)

LARGEST_OUTPUT_TOKENS = 10_000_000
"""What a client's own bound, over all answers, is taken as at most; no engine gives as much."""

LARGEST_ANSWERS = 100_000
"""What n x prompts is taken as at most, for the same reason."""

_COMPLETIONS_MAXIMUM_TOKENS = 16
"""What /v1/completions generates if the client does not say: OpenAI's default, and vLLM's."""

_LONGEST_MODEL_NAME = 256


class InvalidRequestError(Exception):
    """The client has to send something else. `param` names the field, if it is one."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What was read. A msgspec struct, since making one costs a fifth of a dataclass."""

    model: str | None = None
    """None: not named, or unknown because the body is incomplete."""
    streams: bool = False
    prompt_tokens: int = 1
    """Estimate for all prompts together, at least 1."""
    maximum_output_tokens: int | None = None
    """The client's bound for all answers together. None: it gave none."""
    answers: int = 1
    """n (or best_of) x number of prompts."""
    service_tier: str | None = None
    """As the client wrote it. None: it did not."""
    usage_asked: bool = False
    """The client itself asked for usage in the stream."""
    can_ask_usage: bool = False
    """`with_usage_asked` may be used: a stream of which the client sees nothing new by it."""
    priority_in_body: bool = False
    """The body has a `priority` of the client's, or may have one that was not seen."""


class _Body(msgspec.Struct, gc=False):
    """The top-level fields that matter. `Raw` is text that nothing has looked into."""

    model: object = None
    stream: object = None
    stream_options: object = None
    service_tier: object = None
    background: object = None
    priority: msgspec.Raw = msgspec.Raw()
    n: object = None
    best_of: object = None
    max_tokens: object = msgspec.UNSET
    max_completion_tokens: object = None
    max_output_tokens: object = None
    messages: msgspec.Raw = msgspec.Raw()
    system: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()
    suffix: msgspec.Raw = msgspec.Raw()
    documents: msgspec.Raw = msgspec.Raw()
    query: msgspec.Raw = msgspec.Raw()
    queries: msgspec.Raw = msgspec.Raw()
    texts: msgspec.Raw = msgspec.Raw()
    text_1: msgspec.Raw = msgspec.Raw()
    text_2: msgspec.Raw = msgspec.Raw()
    data_1: msgspec.Raw = msgspec.Raw()
    data_2: msgspec.Raw = msgspec.Raw()
    inputs: msgspec.Raw = msgspec.Raw()
    images: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Body).decode

_RAW_FIELDS = frozenset(name for name, kind in _Body.__annotations__.items() if kind is msgspec.Raw)


def read_request(
    endpoint: Endpoint,
    body: bytes | memoryview,
    *,
    complete: bool,
    content_length: int | None,
    estimates: Estimates = DEFAULT_ESTIMATES,
) -> RequestFacts:
    """The facts of a request's body.

    `complete` false: `body` is a prefix; `content_length` is the whole length, None if unknown.
    Raises `InvalidRequestError`.
    """
    if endpoint.body is BodyKind.NONE:
        return RequestFacts()
    if endpoint.body is BodyKind.MULTIPART:
        return _read_upload(body, content_length=content_length, estimates=estimates)
    if not complete:
        return _read_prefix(
            endpoint, bytes(body), content_length=content_length, estimates=estimates
        )
    try:
        return _facts(endpoint, _decode(body), estimates)
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError):
        pass  # what follows is more lenient, or else says what is wrong
    fields = _load(bytes(body))
    try:
        return _facts(endpoint, _encode(fields), estimates)
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, TypeError):
        raise InvalidRequestError("The body can't be read") from None


def with_usage_asked(body: bytes) -> bytes:
    """`body_splicing.with_usage_asked`, for a body that was read. Raises `InvalidRequestError`."""
    try:
        return body_splicing.with_usage_asked(body)
    except MalformedBodyError as error:
        raise InvalidRequestError(f"The body is not a JSON object: {error}") from None


def with_priority(body: bytes, priority: int | None) -> bytes:
    """`body_splicing.with_priority`, for a body that was read. Raises `InvalidRequestError`."""
    try:
        return body_splicing.with_priority(body, priority)
    except MalformedBodyError as error:
        raise InvalidRequestError(f"The body is not a JSON object: {error}") from None


def _load(body: bytes) -> dict[str, object]:
    """The body as Python's json reads it, which knows NaN and lone surrogates."""
    try:
        fields = json.loads(
            body.decode("utf-8-sig", "surrogatepass"),
            parse_constant=lambda _: None,
            parse_int=lambda digits: int(digits) if len(digits) < _LONG_NUMBER else 0.5,
            parse_float=lambda digits: float(digits) if len(digits) < _LONG_NUMBER else 0.5,
        )
    except RecursionError:
        raise InvalidRequestError("The body is nested too deeply") from None
    except UnicodeDecodeError:
        raise InvalidRequestError("The body is not UTF-8") from None
    except ValueError as error:
        raise InvalidRequestError(f"The body is not valid JSON: {str(error)[:200]}") from None
    if not isinstance(fields, dict):
        raise InvalidRequestError("The body has to be a JSON object")
    return fields


def _encode(fields: Mapping[str, object]) -> _Body:
    """What json has read, in the form that the fast reader gives. For rare bodies only."""
    known: dict[str, object] = {}
    for name in _Body.__struct_fields__:
        if name not in fields:
            continue
        value = fields[name]
        if name in _RAW_FIELDS:
            text = json.dumps(value, ensure_ascii=False)
            known[name] = msgspec.Raw(text.encode("utf-8", "replace"))
        else:
            known[name] = value
    make: Callable[..., _Body] = _Body
    return make(**known)


def _facts(endpoint: Endpoint, body: _Body, estimates: Estimates) -> RequestFacts:
    prompt_tokens, prompts = (
        _PROMPT_READERS[endpoint.dialect](body, estimates) if endpoint.runs_model else (1, 1)
    )
    dialect = endpoint.dialect
    if dialect is Dialect.OPENAI_RESPONSES and _boolean(body.background):
        raise InvalidRequestError(
            "Background responses are not offered: they would run outside of every queue",
            "background",
        )
    answers = prompts * max(_integer(body.n) or 1, _integer(body.best_of) or 1, 1)
    answers = min(answers, LARGEST_ANSWERS)
    streams = body.stream is True or _boolean(body.stream)
    usage_asked = can_ask_usage = False
    if streams and dialect in _ASKS_FOR_USAGE:
        usage_asked, can_ask_usage = _read_stream_options(body.stream_options)
    return RequestFacts(
        model=_bounded_text(body.model, _LONGEST_MODEL_NAME),
        streams=streams,
        prompt_tokens=max(1, prompt_tokens),
        maximum_output_tokens=_maximum_output(endpoint, body, answers),
        answers=answers,
        service_tier=_bounded_text(body.service_tier, _LONGEST_MODEL_NAME),
        usage_asked=usage_asked,
        can_ask_usage=can_ask_usage,
        priority_in_body=len(bytes(body.priority)) > 0,
    )


_ASKS_FOR_USAGE = frozenset({Dialect.OPENAI_CHAT, Dialect.OPENAI_COMPLETIONS})
"""Where usage comes in a stream only if it is asked for."""


def _read_stream_options(options: object) -> tuple[bool, bool]:
    """(the client asked for usage, usage can be asked for without its seeing more than one event).

    With `continuous_usage_stats` alone vLLM sends no usage; asking would put it on every event.
    """
    if options is None:
        return False, True
    if not isinstance(options, dict):
        return False, False
    if _boolean(options.get("include_usage")):
        return True, False
    return False, not _boolean(options.get("continuous_usage_stats"))


def _maximum_output(endpoint: Endpoint, body: _Body, answers: int) -> int | None:
    dialect = endpoint.dialect
    if dialect is Dialect.EMBEDDINGS or not endpoint.runs_model:
        return 0
    if dialect is Dialect.OPENAI_RESPONSES:
        bound = _integer(body.max_output_tokens)
    elif dialect is Dialect.OPENAI_COMPLETIONS and body.max_tokens is msgspec.UNSET:
        bound = _COMPLETIONS_MAXIMUM_TOKENS
    else:
        bound = _integer(body.max_tokens)
        if dialect is Dialect.OPENAI_CHAT:
            # vLLM prefers the newer name where both are given.
            bound = _integer(body.max_completion_tokens) or bound
    if bound is None or bound < 1:
        return None
    return min(bound * answers, LARGEST_OUTPUT_TOKENS)


def _read_chat(body: _Body, estimates: Estimates) -> tuple[int, int]:
    tokens = tokens_of_raw(body.messages, estimates)
    return tokens + tokens_of_raw(body.tools, estimates) + _documents(body, estimates), 1


def _read_completion(body: _Body, estimates: Estimates) -> tuple[int, int]:
    tokens, prompts = prompts_of_value(_value(body.prompt), estimates)
    return tokens + tokens_of_raw(body.suffix, estimates), prompts


def _read_responses(body: _Body, estimates: Estimates) -> tuple[int, int]:
    parts = (body.input, body.instructions, body.tools)
    return sum(tokens_of_raw(part, estimates) for part in parts), 1


def _read_messages(body: _Body, estimates: Estimates) -> tuple[int, int]:
    parts = (body.messages, body.system, body.tools)
    return sum(tokens_of_raw(part, estimates) for part in parts), 1


def _read_embeddings(body: _Body, estimates: Estimates) -> tuple[int, int]:
    """Prompts add up. A score or a rank reads the query again with each document."""
    tokens, prompts = tokens_of_raw(body.messages, estimates), 0
    for field in (body.input, body.texts, body.inputs, body.prompt):
        if len(bytes(field)) > 0:
            more_tokens, more_prompts = prompts_of_value(_value(field), estimates)
            tokens, prompts = tokens + more_tokens, prompts + more_prompts
    images = _value(body.images)
    if isinstance(images, list):
        tokens, prompts = tokens + len(images) * estimates.image_tokens, prompts + len(images)
    asked_tokens, asked = _side((body.query, body.queries, body.text_1, body.data_1), estimates)
    found_tokens, found = _side((body.documents, body.text_2, body.data_2), estimates)
    if asked and found:
        pairs = max(asked, found)
        tokens += asked_tokens * (pairs if asked == 1 else 1)
        tokens += found_tokens * (pairs if found == 1 else 1)
        prompts += pairs
    else:
        tokens, prompts = tokens + asked_tokens + found_tokens, prompts + asked + found
    return tokens, max(1, prompts)


def _side(fields: tuple[msgspec.Raw, ...], estimates: Estimates) -> tuple[int, int]:
    tokens = prompts = 0
    for field in fields:
        if len(bytes(field)) == 0:
            continue
        value = _value(field)
        if isinstance(value, dict) and isinstance(value.get("content"), list):
            value = value["content"]  # score's form for documents of several parts
        more_tokens, more_prompts = prompts_of_value(value, estimates)
        tokens, prompts = tokens + more_tokens, prompts + more_prompts
    return tokens, prompts


def _documents(body: _Body, estimates: Estimates) -> int:
    return tokens_of_raw(body.documents, estimates)


def _read_other(body: _Body, estimates: Estimates) -> tuple[int, int]:
    parts = (body.messages, body.prompt, body.input)
    return sum(tokens_of_raw(part, estimates) for part in parts), 1


_PROMPT_READERS: Mapping[Dialect, Callable[[_Body, Estimates], tuple[int, int]]] = MappingProxyType(
    {
        Dialect.OPENAI_CHAT: _read_chat,
        Dialect.OPENAI_COMPLETIONS: _read_completion,
        Dialect.OPENAI_RESPONSES: _read_responses,
        Dialect.ANTHROPIC_MESSAGES: _read_messages,
        Dialect.EMBEDDINGS: _read_embeddings,
        Dialect.OTHER: _read_other,
    }
)


def _read_upload(
    body: bytes | memoryview, *, content_length: int | None, estimates: Estimates
) -> RequestFacts:
    """A multipart upload: sound, of which only the length is looked at."""
    length = max(len(body), content_length or 0)
    tokens = min(length // estimates.audio_bytes_per_token, estimates.largest_upload_tokens)
    return RequestFacts(prompt_tokens=max(1, tokens))


def _read_prefix(
    endpoint: Endpoint, prefix: bytes, *, content_length: int | None, estimates: Estimates
) -> RequestFacts:
    """What the whole top-level members in the prefix say, and a guess at the rest."""
    seen: dict[str, object] = {}
    try:
        start = body_splicing.object_start(prefix)
    except MalformedBodyError:
        raise InvalidRequestError("The body has to be a JSON object") from None
    try:
        for member in body_splicing.find_members(prefix, start=start):
            if member.key in _SMALL_FIELDS:
                seen[member.key] = _small_value(prefix[member.value_start : member.value_end])
    except MalformedBodyError:
        pass  # where the prefix ends
    text_bytes, media, inside_media = _survey(prefix, estimates)
    rest = max(0, (content_length or len(prefix)) - len(prefix))
    tokens = tokens_of_bytes(text_bytes, estimates) + media * estimates.image_tokens
    if inside_media:
        tokens += rest // estimates.media_bytes * estimates.image_tokens
    else:
        tokens += min(tokens_of_bytes(rest, estimates), estimates.largest_unread_tokens)
    if not endpoint.runs_model:
        tokens = 1
    body = _encode(seen)
    answers = max(_integer(body.n) or 1, _integer(body.best_of) or 1, 1)
    if endpoint.dialect is Dialect.OPENAI_COMPLETIONS and "max_tokens" not in seen:
        body.max_tokens = None  # it may still come
    return RequestFacts(
        model=_bounded_text(body.model, _LONGEST_MODEL_NAME),
        streams=_boolean(body.stream),
        prompt_tokens=max(1, tokens),
        maximum_output_tokens=_maximum_output(endpoint, body, min(answers, LARGEST_ANSWERS)),
        answers=min(answers, LARGEST_ANSWERS),
        service_tier=_bounded_text(body.service_tier, _LONGEST_MODEL_NAME),
        usage_asked=_read_stream_options(body.stream_options)[0],
        can_ask_usage=False,
        priority_in_body=True,
    )


_SMALL_FIELDS = frozenset(_Body.__struct_fields__) - _RAW_FIELDS

_MEDIA_STRING_BYTES = 1024
_BASE64 = re.compile(rb'"(?:data:|[A-Za-z0-9+/_-]{512})')
_LONG_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?+)', re.DOTALL)


def _survey(prefix: bytes, estimates: Estimates) -> tuple[int, int, bool]:
    """(bytes that are no media, media, whether the prefix ends inside of one of these).

    Here a string counts as media if it is long and looks like it: its place is not known.
    """
    text_bytes, media, inside = len(prefix), 0, False
    for match in _LONG_STRING.finditer(prefix):
        length = match.end() - match.start()
        if length >= _MEDIA_STRING_BYTES and _BASE64.match(prefix, match.start()):
            text_bytes -= length
            media += 1 + length // estimates.media_bytes
            inside = not match[1]
    return text_bytes, media, inside


def _small_value(text: bytes) -> object:
    if len(text) > _LONGEST_SMALL_VALUE:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


_LONGEST_SMALL_VALUE = 1024

_LONG_NUMBER = 18
"""Digits of a number that no field here can mean, and that would cost time to read exactly."""


def _value(raw: msgspec.Raw) -> object:
    text = bytes(raw)
    return msgspec.json.decode(text) if text else None


def _bounded_text(value: object, length: int) -> str | None:
    return value if isinstance(value, str) and len(value) <= length else None


_TRUE_WORDS = frozenset({"1", "on", "t", "true", "y", "yes"})


def _boolean(value: object) -> bool:
    """What pydantic's lenient mode takes for true."""
    if value is None or value is False:
        return False
    if isinstance(value, str):
        return value.lower() in _TRUE_WORDS
    return value == 1


def _integer(value: object) -> int | None:
    """What pydantic's lenient mode takes for an integer. None: nothing of the kind."""
    if value is None or type(value) is int:
        return value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str) and len(value) <= _LONG_NUMBER:
        try:
            return int(value.strip())
        except ValueError:
            return None
    return None
