"""What does a request ask for, as far as admission has to know?

`read_request` is total: for any bytes it returns facts or raises `InvalidRequestError`, in time
linear in their length. It judges no values: whatever the engine would refuse (a negative
`max_tokens`, a `temperature` of "hot") passes, counts as not given, and is refused by the engine.
Of several equal keys the last one counts, as in Python's json.

A body that is not at hand as a whole (`complete` false), or that is so long that reading it would
hold up everybody else, is judged by its prefix and its length; the engine will say if it is wrong.
What is not known of it is taken as the dearer or the slower: not streamed, so that its prompt
counts as work until the answer's end; no bound on its output.
"""

import json
from collections.abc import Callable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final

import msgspec

from giveway_admission import body_splicing
from giveway_admission.body_splicing import LONGEST_SCANNED_BYTES, MalformedBodyError
from giveway_admission.endpoints import BodyKind, Dialect, Endpoint
from giveway_admission.estimates import DEFAULT_ESTIMATES, Estimates, tokens_of_bytes
from giveway_admission.request_bodies import (
    BODIES,
    LONGEST_NUMBER,
    RAW_FIELDS,
    UNREAD,
    Body,
    ResponsesBody,
    boolean,
)
from giveway_admission.text_skimming import find_media, is_crowded

LARGEST_OUTPUT_TOKENS = 10_000_000
"""What a client's own bound, over all answers, is taken as at most; no engine gives as much."""

LARGEST_ANSWERS = 100_000
"""What n x prompts is taken as at most, for the same reason."""

_LONGEST_WORD = 256
"""Characters of a model's name or a service tier; what is longer is not kept."""

_LONGEST_SMALL_VALUE = 1024
"""Bytes of a value that is read from the prefix of a long body."""

_MOST_STEPS = 4096
"""Strings and brackets inside of a long body's values that are stepped over to find its members."""

_MOST_MEMBERS = 400
"""Members of a long body that are looked at; no dialect has more than a hundred."""

_DECODERS: Mapping[Dialect, Callable[[bytes | memoryview], Body]] = MappingProxyType(
    {dialect: msgspec.json.Decoder(body).decode for dialect, body in BODIES.items()}
)

_SKIMMERS: Mapping[Dialect, Callable[[bytes | memoryview], msgspec.Struct]] = MappingProxyType(
    {dialect: msgspec.json.Decoder(UNREAD[body]).decode for dialect, body in BODIES.items()}
)

_ASKS_FOR_USAGE = frozenset({Dialect.OPENAI_CHAT, Dialect.OPENAI_COMPLETIONS})
"""Where usage comes in a stream only if it is asked for."""


_NO_BODY: Final = BodyKind.NONE
_MULTIPART: Final = BodyKind.MULTIPART
_EMBEDDINGS: Final = Dialect.EMBEDDINGS


class InvalidRequestError(Exception):
    """The client has to send something else. `param` names the field, if it is one."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What was read. A msgspec struct, since making one costs a fifth of a dataclass."""

    model: str | None = None
    """None: not named, or not seen because the body is incomplete."""
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
    if endpoint.body is _NO_BODY:
        return RequestFacts()
    if endpoint.body is _MULTIPART:
        return _read_upload(body, content_length=content_length, estimates=estimates)
    if complete and len(body) > LONGEST_SCANNED_BYTES:
        complete, content_length = False, len(body)
    if complete and is_crowded(body):
        try:
            return _facts(endpoint, _skim(endpoint.dialect, body), estimates)
        except RecursionError:
            raise InvalidRequestError("The body is nested too deeply") from None
        except (msgspec.MsgspecError, ValueError):
            complete, content_length = False, len(body)  # whatever it is, the engine will say it
    if not complete:
        prefix = bytes(body[:LONGEST_SCANNED_BYTES])
        return _read_prefix(endpoint, prefix, content_length=content_length, estimates=estimates)
    try:
        return _facts(endpoint, _DECODERS[endpoint.dialect](body), estimates)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # what follows is more lenient, or else says what is wrong
    fields = _load(bytes(body))
    try:
        return _facts(endpoint, _from_fields(endpoint.dialect, fields), estimates)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise InvalidRequestError("The body is nested too deeply") from None


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


def _facts(endpoint: Endpoint, body: Body, estimates: Estimates) -> RequestFacts:
    dialect = endpoint.dialect
    if isinstance(body, ResponsesBody) and boolean(body.background):
        raise InvalidRequestError(
            "Background responses are not offered: they would run outside of every queue.",
            "background",
        )
    prompt_tokens, prompts = body.prompts(estimates)
    streams = body.stream is True or boolean(body.stream)
    usage_asked = can_ask_usage = False
    if streams and dialect in _ASKS_FOR_USAGE:
        usage_asked, can_ask_usage = _read_stream_options(body.stream_options)
    answers = min(max(1, prompts * body.answers()), LARGEST_ANSWERS)
    return RequestFacts(
        model=_word(body.model),
        streams=streams,
        prompt_tokens=max(1, prompt_tokens),
        maximum_output_tokens=_maximum_output(endpoint, body, answers),
        answers=answers,
        service_tier=_word(body.service_tier),
        usage_asked=usage_asked,
        can_ask_usage=can_ask_usage,
        priority_in_body=body.priority is not msgspec.UNSET,
    )


def _read_stream_options(options: object) -> tuple[bool, bool]:
    """(the client asked for usage, we may ask and it sees nothing but one more event).

    With `continuous_usage_stats` alone vLLM sends no usage; asking would put it on every event.
    """
    if options is None:
        return False, True
    if not isinstance(options, dict):
        return False, False
    if boolean(options.get("include_usage")):
        return True, False
    return False, not boolean(options.get("continuous_usage_stats"))


def _maximum_output(endpoint: Endpoint, body: Body, answers: int) -> int | None:
    if endpoint.dialect is _EMBEDDINGS or not endpoint.runs_model:
        return 0
    bound = body.bound()
    return None if bound is None or bound < 1 else min(bound * answers, LARGEST_OUTPUT_TOKENS)


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
    if b"\0" in prefix:
        # Python's json would read it as UTF-16, in which our own fields could not be put.
        raise InvalidRequestError("The body is not UTF-8")
    try:
        start = body_splicing.object_start(prefix)
    except MalformedBodyError:
        raise InvalidRequestError("The body has to be a JSON object") from None
    # Either may still come: no default of max_tokens counts, and a priority has to be expected.
    fields: dict[str, object] = {"max_tokens": None, "priority": None}
    long_fields = RAW_FIELDS[BODIES[endpoint.dialect]]
    try:
        members = body_splicing.find_members(prefix, start=start, most_steps=_MOST_STEPS)
        for member in islice(members, _MOST_MEMBERS):
            if member.key not in long_fields:
                fields[member.key] = _small_value(prefix[member.value_start : member.value_end])
    except MalformedBodyError:
        pass  # where the prefix ends
    rest = max(0, (content_length or 0) - len(prefix))
    facts = _facts(endpoint, _from_fields(endpoint.dialect, fields), estimates)
    return msgspec.structs.replace(
        facts,
        prompt_tokens=_guess_prompt(prefix, rest, estimates) if endpoint.runs_model else 1,
        can_ask_usage=False,
    )


def _guess_prompt(prefix: bytes, rest: int, estimates: Estimates) -> int:
    """Tokens of a long body. Here a string is media if it is long and looks like it, since its
    place is not known; if the prefix ends inside of such a string, then the rest is media too.
    """
    media, media_bytes, inside = find_media(prefix)
    text_bytes = len(prefix) - media_bytes
    if inside:
        media += rest // estimates.media_bytes
        rest_tokens = 0
    else:
        rest_tokens = min(tokens_of_bytes(rest, estimates), estimates.largest_unread_tokens)
    tokens = tokens_of_bytes(text_bytes, estimates) + media * estimates.image_tokens + rest_tokens
    return max(1, tokens)


def _small_value(text: bytes) -> object:
    if len(text) > _LONGEST_SMALL_VALUE:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= _LONGEST_WORD else None


def _load(body: bytes) -> dict[str, object]:
    """The body as Python's json reads it, which knows NaN and lone surrogates."""
    try:
        fields = json.loads(
            body.decode("utf-8-sig", "surrogatepass"),
            parse_constant=lambda _: None,
            parse_int=lambda digits: int(digits) if len(digits) < LONGEST_NUMBER else 0.5,
            parse_float=lambda digits: float(digits) if len(digits) < LONGEST_NUMBER else 0.5,
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


def _skim(dialect: Dialect, body: bytes | memoryview) -> Body:
    """The struct of a body that is not taken apart. Raises what `msgspec.json.decode` raises."""
    unread = _SKIMMERS[dialect](body)
    kind = BODIES[dialect]
    known: dict[str, object] = {}
    for name in kind.__struct_fields__:
        raw: msgspec.Raw = getattr(unread, name)
        if raw:
            known[name] = raw if name in RAW_FIELDS[kind] else _small_value(bytes(raw))
    make: Callable[..., Body] = kind
    return make(**known)


def _from_fields(dialect: Dialect, fields: Mapping[str, object]) -> Body:
    """The struct of fields that are decoded already. For rare bodies only."""
    body = BODIES[dialect]
    known: dict[str, object] = {}
    for name in body.__struct_fields__:
        if name not in fields:
            continue
        value = fields[name]
        if name in RAW_FIELDS[body]:
            text = json.dumps(value, ensure_ascii=False)
            known[name] = msgspec.Raw(text.encode("utf-8", "replace"))
        else:
            known[name] = value
    make: Callable[..., Body] = body
    return make(**known)
