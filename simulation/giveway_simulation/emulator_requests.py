"""What does a request to the emulator ask for?

Reads the JSON body of each generating endpoint into one `Asked`, or raises `RefusedError` with the
status, type and words that vLLM 0.32 uses. Unknown fields are ignored, as there.
"""

import random
import zlib
from dataclasses import dataclass
from enum import StrEnum

from giveway_simulation.emulator_fields import (
    Fields,
    RefusedError,
    count_tokens,
    described,
    invalid,
    read_body,
)
from giveway_simulation.emulator_http import HttpRequest

MAXIMUM_ANSWERS = 16_384
MESSAGE_TOKENS = 4
ANSWER_PRIMING_TOKENS = 3
COMPLETION_DEFAULT_TOKENS = 16
"""What /v1/completions generates if nothing was asked for."""
UNBOUNDED_MEAN_TOKENS = 256
"""Mean length of an answer that no `max_tokens` bounds; an emulator's choice, no measurement."""


class Api(StrEnum):
    """The generating endpoints."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"
    EMBEDDINGS = "/v1/embeddings"


class OutputLengths(StrEnum):
    """How long answers get."""

    FULL = "full"
    """As long as `max_tokens` allows (finish_reason length)."""
    RANDOM = "random"
    """Drawn from the request's seed, or else its prompt; `max_tokens` bounds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt. `text` is repeated by `echo`; "" if it came as token numbers."""

    tokens: int
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that will be served."""

    api: Api
    model: str
    prompts: tuple[Prompt, ...]
    answers: int
    """n: how many for each prompt."""
    output_tokens: tuple[int, ...]
    """How long each answer gets: prompt by prompt, n each."""
    maximum_tokens: int
    """The bound in force."""
    streams: bool
    usage: bool
    """A last event tells the usage."""
    continuous_usage: bool
    """Every event tells the usage so far."""
    echo: bool
    priority: int
    seed: int
    request_id: str | None
    """None: the client named none."""
    asked_maximum: int | None
    """The client's own bound. None: it gave none."""
    base64: bool = False
    """Embeddings as base64 text."""

    @property
    def prompt_tokens(self) -> int:
        """All prompts together; an `n` of them counts once."""
        return sum(prompt.tokens for prompt in self.prompts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingSettings:
    """What reading depends on."""

    model: str
    max_model_len: int
    output_lengths: OutputLengths


def read_generating(api: Api, request: HttpRequest, *, settings: ReadingSettings) -> Asked:
    """Read a request to one of the generating endpoints."""
    fields = read_body(request)
    prompts = _prompts(api, fields)
    asked_maximum = _asked_maximum(api, fields)
    temperature = fields.number("temperature")
    answers = fields.integer("n") if api in (Api.CHAT, Api.COMPLETIONS) else 1
    body_priority = fields.integer("priority")
    streams = fields.flag("stream")
    usage, continuous_usage = _usage_options(fields, streams=streams)
    check_model(fields, settings=settings)
    if temperature is not None and temperature < 0:
        raise _bad("temperature", temperature, f"must be non-negative, got {temperature}.")
    if answers is not None and answers < 1:
        raise RefusedError(400, f"n must be at least 1, got {answers}.", parameter=None)
    if answers is not None and answers > MAXIMUM_ANSWERS:
        raise RefusedError(
            400,
            f"n must be at most {MAXIMUM_ANSWERS}, got {answers}. To increase this limit, set the"
            " VLLM_MAX_N_SEQUENCES environment variable.",
            parameter=None,
        )
    _check_lengths(prompts, asked_maximum, settings=settings)
    seed = fields.integer("seed")
    if seed is None:
        seed = zlib.crc32(request.body)
    longest = max(prompt.tokens for prompt in prompts)
    maximum = settings.max_model_len - longest if asked_maximum is None else asked_maximum
    maximum = max(1, min(maximum, settings.max_model_len - longest))
    count = len(prompts) * (answers or 1)
    draws = settings.output_lengths is OutputLengths.RANDOM or asked_maximum is None
    lengths = _output_lengths(
        request, fields, count=count, maximum=maximum, seed=seed if draws else None
    )
    return Asked(
        api=api,
        model=settings.model,
        prompts=prompts,
        answers=answers or 1,
        output_tokens=lengths,
        maximum_tokens=maximum,
        streams=streams and api is not Api.EMBEDDINGS,
        usage=usage,
        continuous_usage=continuous_usage,
        echo=fields.flag("echo") and api is Api.COMPLETIONS,
        priority=_priority(api, request, body_priority),
        seed=seed,
        request_id=_request_id(request),
        asked_maximum=asked_maximum,
        base64=fields.body.get("encoding_format") == "base64",
    )


def check_model(fields: Fields, *, settings: ReadingSettings) -> None:
    """No model, or ours; else 404."""
    model = fields.body.get("model")
    if model is not None and model not in ("", settings.model):
        raise RefusedError(
            404,
            f"The model `{model}` does not exist. Valid aliases: {settings.model}.",
            kind="NotFoundError",
            parameter="model",
        )


def chat_prompt(fields: Fields) -> Prompt:
    """The prompt that a list of messages makes."""
    messages = fields.items("messages")
    if not messages:
        raise RefusedError(
            400,
            "Cannot apply chat template to an empty conversation. Provide at least one message.",
            parameter=None,
        )
    tokens = sum(count_tokens(_text_of(message)) + MESSAGE_TOKENS for message in messages)
    system = fields.body.get("system")
    if system:
        tokens += count_tokens(_text_of({"content": system})) + MESSAGE_TOKENS
    return Prompt(tokens=tokens + ANSWER_PRIMING_TOKENS)


def _prompts(api: Api, fields: Fields) -> tuple[Prompt, ...]:
    match api:
        case Api.CHAT | Api.MESSAGES:
            return (chat_prompt(fields),)
        case Api.RESPONSES:
            given = fields.required("input")
            messages = given if isinstance(given, list) else [{"content": given}]
            instructions = fields.body.get("instructions")
            if instructions:
                messages = [{"content": instructions}, *messages]
            return (chat_prompt(Fields({"messages": messages})),)
        case Api.COMPLETIONS:
            return _plain_prompts(fields.body.get("prompt"))
        case Api.EMBEDDINGS:
            if "input" not in fields.body and "messages" in fields.body:
                return (chat_prompt(fields),)
            given = fields.required("input")
            if given in ("", []):
                words = "The decoder prompt cannot be empty"
                if given == []:
                    words = "You must pass at least one prompt"
                raise RefusedError(400, words, parameter=None)
            return _plain_prompts(given)


def _plain_prompts(given: object) -> tuple[Prompt, ...]:
    """A text, a list of token numbers, or a list of either."""
    if not given:
        raise RefusedError(
            400,
            "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)",
            parameter="prompt",
        )
    if isinstance(given, str):
        return (Prompt(tokens=max(1, count_tokens(given)), text=given),)
    if isinstance(given, list):
        if all(isinstance(item, int) for item in given):
            return (Prompt(tokens=len(given)),)
        return tuple(prompt for item in given for prompt in _plain_prompts(item))
    raise invalid("body.prompt", "string_type", "Input should be a valid string", str(given))


def _text_of(message: object) -> str:
    """All text of a message, however its content is given."""
    if isinstance(message, str):
        return message
    if isinstance(message, list):
        return "".join(_text_of(part) for part in message)
    if isinstance(message, dict):
        text = message.get("text")
        if isinstance(text, str):
            return text
        return _text_of(message.get("content"))
    return ""


def _asked_maximum(api: Api, fields: Fields) -> int | None:
    names: tuple[str, ...]
    match api:
        case Api.CHAT:
            names = ("max_completion_tokens", "max_tokens")
        case Api.RESPONSES:
            names = ("max_output_tokens",)
        case Api.MESSAGES:
            fields.required("max_tokens")
            names = ("max_tokens",)
        case Api.COMPLETIONS:
            names = ("max_tokens",)
        case Api.EMBEDDINGS:
            return 1
    values = [value for name in names if (value := fields.integer(name)) is not None]
    if values:
        return values[0]
    return COMPLETION_DEFAULT_TOKENS if api is Api.COMPLETIONS else None


def _usage_options(fields: Fields, *, streams: bool) -> tuple[bool, bool]:
    options = fields.body.get("stream_options")
    if options is None:
        return (False, False)
    if not streams:
        raise RefusedError(
            400,
            "Stream options can only be defined when `stream=True`. (parameter=stream_options)",
            parameter="stream_options",
        )
    if not isinstance(options, dict):
        raise invalid(
            "body.stream_options",
            "model_attributes_type",
            "Input should be a valid dictionary or object to extract fields from",
            described(options),
        )
    usage = bool(options.get("include_usage"))
    return (usage, usage and bool(options.get("continuous_usage_stats")))


def _check_lengths(
    prompts: tuple[Prompt, ...], asked_maximum: int | None, *, settings: ReadingSettings
) -> None:
    limit = settings.max_model_len
    if asked_maximum is not None and asked_maximum < 1:
        raise _bad("max_tokens", asked_maximum, f"must be at least 1, got {asked_maximum}.")
    if asked_maximum is not None and asked_maximum > limit:
        raise RefusedError(
            400,
            f"max_tokens={asked_maximum} cannot be greater than max_model_len={limit}. Please"
            f" request fewer output tokens. (parameter=max_tokens, value={asked_maximum})",
            parameter="max_tokens",
        )
    if max(prompt.tokens for prompt in prompts) >= limit:
        raise RefusedError(
            400,
            f"This model's maximum context length is {limit} tokens. However, your prompt contains"
            f" at least {limit + 1} input tokens, which exceeds this limit even without any output"
            " tokens. Please reduce the length of the input prompt. (parameter=input_tokens,"
            f" value={limit + 1})",
            parameter="input_tokens",
        )


def _output_lengths(
    request: HttpRequest,
    fields: Fields,
    *,
    count: int,
    maximum: int,
    seed: int | None,
) -> tuple[int, ...]:
    """How long each answer gets; one shorter than `maximum` ends by itself. `seed` None: full."""
    named = request.headers.get(b"x-emulator-output-tokens", b"")
    if named.isdigit():
        return (max(1, min(int(named), maximum)),) * count
    if seed is None or fields.flag("ignore_eos"):
        return (maximum,) * count
    least = min(maximum, max(1, fields.integer("min_tokens") or 1))
    generator = random.Random(seed)  # noqa: S311
    mean = min(UNBOUNDED_MEAN_TOKENS, max(1, maximum // 2))
    return tuple(
        max(least, min(maximum, 1 + int(generator.expovariate(1.0 / mean)))) for _ in range(count)
    )


def _priority(api: Api, request: HttpRequest, body_priority: int | None) -> int:
    """The header beats the body; /v1/messages has the header only."""
    header = request.headers.get(b"x-vllm-priority")
    if header is not None:
        try:
            return int(header)
        except ValueError:
            pass
    return 0 if body_priority is None or api is Api.MESSAGES else body_priority


def _request_id(request: HttpRequest) -> str | None:
    name = request.headers.get(b"x-request-id")
    return name.decode("latin-1") if name else None


def _bad(name: str, value: object, complaint: str) -> RefusedError:
    return RefusedError(
        400, f"{name} {complaint} (parameter={name}, value={value})", parameter=name
    )
