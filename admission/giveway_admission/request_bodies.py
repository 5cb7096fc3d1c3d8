"""Which fields of a request's body matter to admission, in each dialect?

One struct for each dialect, since reading fewer fields is faster. `Raw` is JSON text that nothing
has looked into; `object` is whatever the client wrote there, so that no type is ever refused here.

Values are taken as leniently as vLLM's pydantic models take them ("true", "17", 17.0), since what
counts is what the engine will understand.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from msgspec import UNSET, Raw

from giveway_admission.endpoints import Dialect
from giveway_admission.estimates import Estimates
from giveway_admission.prompt_estimating import prompts_of_raw, prompts_of_value, tokens_of_raw
from giveway_admission.text_skimming import is_crowded, skim_prompts

_COMPLETIONS_MAXIMUM_TOKENS = 16
"""What /v1/completions generates if the client does not say: OpenAI's default, and vLLM's."""

LONGEST_NUMBER = 18
"""Digits of a number that no field here can mean, and that would cost time to read exactly."""


class Body(msgspec.Struct, gc=False):
    """What all dialects have. As it is, it serves those that have nothing else."""

    model: object = None
    stream: object = None
    stream_options: object = None
    service_tier: object = None
    priority: object = UNSET

    def prompts(self, _estimates: Estimates) -> tuple[int, int]:
        """(tokens of all prompts together, number of prompts)."""
        return 1, 1

    def answers(self) -> int:
        """Answers to each prompt."""
        return 1

    def bound(self) -> int | None:
        """The client's bound on the output tokens of one answer. None: it gave none."""
        return None


class ChatBody(Body, gc=False):
    n: object = None
    max_tokens: object = None
    max_completion_tokens: object = None
    messages: Raw = Raw()
    tools: Raw = Raw()
    documents: Raw = Raw()

    def prompts(self, estimates: Estimates) -> tuple[int, int]:
        return _tokens((self.messages, self.tools, self.documents), estimates), 1

    def answers(self) -> int:
        return 1 if self.n is None else integer(self.n) or 1

    def bound(self) -> int | None:
        """vLLM prefers the newer name where both are given."""
        return integer(self.max_completion_tokens) or integer(self.max_tokens)


class CompletionsBody(Body, gc=False):
    n: object = None
    best_of: object = None
    max_tokens: object = _COMPLETIONS_MAXIMUM_TOKENS
    prompt: Raw = Raw()
    suffix: Raw = Raw()

    def prompts(self, estimates: Estimates) -> tuple[int, int]:
        tokens, prompts = prompts_of_raw(self.prompt, estimates)
        return tokens + tokens_of_raw(self.suffix, estimates), prompts

    def answers(self) -> int:
        return max(integer(self.n) or 1, integer(self.best_of) or 1)

    def bound(self) -> int | None:
        return integer(self.max_tokens)


class ResponsesBody(Body, gc=False):
    background: object = None
    max_output_tokens: object = None
    input: Raw = Raw()
    instructions: Raw = Raw()
    tools: Raw = Raw()

    def prompts(self, estimates: Estimates) -> tuple[int, int]:
        return _tokens((self.input, self.instructions, self.tools), estimates), 1

    def bound(self) -> int | None:
        return integer(self.max_output_tokens)


class MessagesBody(Body, gc=False):
    max_tokens: object = None
    system: Raw = Raw()
    messages: Raw = Raw()
    tools: Raw = Raw()

    def prompts(self, estimates: Estimates) -> tuple[int, int]:
        return _tokens((self.messages, self.system, self.tools), estimates), 1

    def bound(self) -> int | None:
        return integer(self.max_tokens)


class EmbeddingsBody(Body, gc=False):
    """Embeddings, scores, ranks and classes, in OpenAI's, Jina's and Cohere's words."""

    messages: Raw = Raw()
    input: Raw = Raw()
    prompt: Raw = Raw()
    texts: Raw = Raw()
    inputs: Raw = Raw()
    images: Raw = Raw()
    query: Raw = Raw()
    queries: Raw = Raw()
    documents: Raw = Raw()
    text_1: Raw = Raw()
    text_2: Raw = Raw()
    data_1: Raw = Raw()
    data_2: Raw = Raw()

    def prompts(self, estimates: Estimates) -> tuple[int, int]:
        """Prompts add up. A score or a rank reads the query again with each document."""
        tokens, prompts = _side((self.input, self.texts, self.inputs, self.prompt), estimates)
        tokens += tokens_of_raw(self.messages, estimates)
        images = _images(self.images)
        tokens += images * estimates.image_tokens
        prompts += images
        asked_tokens, asked = _side((self.query, self.queries, self.text_1, self.data_1), estimates)
        found_tokens, found = _side((self.documents, self.text_2, self.data_2), estimates)
        pairs = max(asked, found)
        if asked and found:
            tokens += asked_tokens * (pairs if asked == 1 else 1)
            tokens += found_tokens * (pairs if found == 1 else 1)
        else:
            tokens += asked_tokens + found_tokens
        return tokens, max(1, prompts + pairs)


BODIES: Mapping[Dialect, type[Body]] = MappingProxyType(
    {
        Dialect.OPENAI_CHAT: ChatBody,
        Dialect.OPENAI_COMPLETIONS: CompletionsBody,
        Dialect.OPENAI_RESPONSES: ResponsesBody,
        Dialect.ANTHROPIC_MESSAGES: MessagesBody,
        Dialect.EMBEDDINGS: EmbeddingsBody,
        Dialect.OTHER: Body,
    }
)

RAW_FIELDS: Mapping[type[Body], frozenset[str]] = MappingProxyType(
    {
        body: frozenset(field.name for field in msgspec.structs.fields(body) if field.type is Raw)
        for body in BODIES.values()
    }
)
"""Fields that may be long."""

UNREAD: Mapping[type[Body], type[msgspec.Struct]] = MappingProxyType(
    {
        body: msgspec.defstruct(
            f"Unread{body.__name__}", [(name, Raw, Raw()) for name in body.__struct_fields__]
        )
        for body in BODIES.values()
    }
)
"""The same fields, none of them looked into. An empty text: the field is absent."""


_TRUE_WORDS = frozenset({"1", "on", "t", "true", "y", "yes"})


def boolean(value: object) -> bool:
    """What pydantic's lenient mode takes for true."""
    if value is None or value is False:
        return False
    if isinstance(value, str):
        return value.lower() in _TRUE_WORDS
    return value == 1


def integer(value: object) -> int | None:
    """What pydantic's lenient mode takes for an integer. None: nothing of the kind."""
    if value is None or type(value) is int:
        return value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str) and len(value) <= LONGEST_NUMBER:
        try:
            return int(value.strip())
        except ValueError:
            return None
    return None


def _tokens(parts: tuple[Raw, ...], estimates: Estimates) -> int:
    return sum([tokens_of_raw(part, estimates) for part in parts if part])


def _side(fields: tuple[Raw, ...], estimates: Estimates) -> tuple[int, int]:
    tokens = prompts = 0
    for field in fields:
        text = bytes(field)
        if not text or text == b"null":
            continue
        if is_crowded(text):
            more_tokens, more_prompts = skim_prompts(text, estimates)
        else:
            value = msgspec.json.decode(text)
            if isinstance(value, dict) and isinstance(value.get("content"), list):
                value = value["content"]  # score's form for documents of several parts
            more_tokens, more_prompts = prompts_of_value(value, estimates)
        tokens, prompts = tokens + more_tokens, prompts + more_prompts
    return tokens, prompts


def _images(raw: Raw) -> int:
    text = bytes(raw)
    if is_crowded(text):
        return text.count(b'"') // 2
    value = msgspec.json.decode(text) if text else None
    return len(value) if isinstance(value, list) else 0
