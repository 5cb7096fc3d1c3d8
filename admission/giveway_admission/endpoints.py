"""Which of the engine's paths may a client reach, and what does each of them cost?

An allow-list. A path is compared as it was sent, byte for byte: no decoding, no case folding, no
removal of dots or doubled slashes, so that what is judged here is what the engine will see. Paths
that control the engine, that generate without being metered, or that nobody knows are not in the
list, and so are refused as not found.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType


class Dialect(Enum):
    """How a request names its fields and how its answer looks."""

    OPENAI_CHAT = "openai_chat"
    OPENAI_COMPLETIONS = "openai_completions"
    OPENAI_RESPONSES = "openai_responses"
    ANTHROPIC_MESSAGES = "anthropic_messages"
    EMBEDDINGS = "embeddings"
    """One pass over the prompts and no output tokens: embeddings, scores, ranks, classes."""
    OTHER = "other"


class BodyKind(Enum):
    """What a request carries."""

    JSON = "json"
    MULTIPART = "multipart"
    NONE = "none"


class PriorityBy(Enum):
    """Where the engine reads a request's priority."""

    HEADER = "header"
    """`X-Vllm-Priority`, which overrides the body's field."""
    BODY = "body"
    """Only the body's field counts."""
    NOTHING = "nothing"


class ErrorDialect(Enum):
    """Which shape our own errors have."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One path that may be reached."""

    path: str
    """The whole path, or what it begins with (see `find_endpoint`)."""
    dialect: Dialect
    methods: frozenset[str]
    metered: bool
    """False: passed on at once, without class, seat or charge."""
    body: BodyKind
    priority_by: PriorityBy
    error_dialect: ErrorDialect = ErrorDialect.OPENAI
    runs_model: bool = True
    """False: the engine's API server answers alone (tokenizing), so no LLM tokens are spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The path or its method is not allowed."""

    status: int
    """404 or 405."""
    allowed_methods: tuple[str, ...] = ()
    """For the `Allow` header of a 405."""


def _post(
    path: str,
    dialect: Dialect,
    *,
    priority_by: PriorityBy = PriorityBy.HEADER,
    error_dialect: ErrorDialect = ErrorDialect.OPENAI,
    body: BodyKind = BodyKind.JSON,
    runs_model: bool = True,
) -> Endpoint:
    return Endpoint(
        path=path,
        dialect=dialect,
        methods=frozenset({"POST"}),
        metered=True,
        body=body,
        priority_by=priority_by,
        error_dialect=error_dialect,
        runs_model=runs_model,
    )


def _free(path: str, *methods: str) -> Endpoint:
    return Endpoint(
        path=path,
        dialect=Dialect.OTHER,
        methods=frozenset(methods),
        metered=False,
        body=BodyKind.NONE,
        priority_by=PriorityBy.NOTHING,
        runs_model=False,
    )


_EMBEDDING_PATHS = (
    "/v1/embeddings",
    "/v2/embed",
    "/pooling",
    "/classify",
    "/score",
    "/v1/score",
    "/rerank",
    "/v1/rerank",
    "/v2/rerank",
)

_ALL = (
    _post("/v1/chat/completions", Dialect.OPENAI_CHAT),
    _post("/v1/completions", Dialect.OPENAI_COMPLETIONS),
    _post("/v1/responses", Dialect.OPENAI_RESPONSES),
    _post("/v1/messages", Dialect.ANTHROPIC_MESSAGES, error_dialect=ErrorDialect.ANTHROPIC),
    _post(
        "/v1/messages/count_tokens",
        Dialect.OTHER,
        priority_by=PriorityBy.NOTHING,
        error_dialect=ErrorDialect.ANTHROPIC,
        runs_model=False,
    ),
    *(_post(path, Dialect.EMBEDDINGS, priority_by=PriorityBy.BODY) for path in _EMBEDDING_PATHS),
    *(
        _post(path, Dialect.OTHER, priority_by=PriorityBy.NOTHING, body=BodyKind.MULTIPART)
        for path in ("/v1/audio/transcriptions", "/v1/audio/translations")
    ),
    *(
        _post(path, Dialect.OTHER, priority_by=PriorityBy.NOTHING, runs_model=False)
        for path in ("/tokenize", "/detokenize")
    ),
    _free("/v1/models", "GET"),
    _free("/health", "GET"),
    _free("/version", "GET"),
    _free("/ping", "GET", "POST"),
)

ENDPOINTS: Mapping[str, Endpoint] = MappingProxyType({endpoint.path: endpoint for endpoint in _ALL})
"""Every endpoint that has a fixed path."""

_ONE_MODEL = _free("/v1/models/", "GET")
_ONE_RESPONSE = _free("/v1/responses/", "GET", "DELETE")
_CANCEL_RESPONSE = _free("/v1/responses/{id}/cancel", "POST")

_MODEL_PATH = re.compile(r"/v1/models/[A-Za-z0-9_~:@+.-]+(?:(?:/|%2[Ff])[A-Za-z0-9_~:@+.-]+)*")
"""A model's name may hold slashes; clients send them plain or as %2F."""
_RESPONSE_PATH = re.compile(r"/v1/responses/[A-Za-z0-9_:-][A-Za-z0-9_:.-]*(?P<cancel>/cancel)?")
_DOT_SEGMENT = re.compile(r"(?:/|%2[Ff])\.{1,2}(?:/|%2[Ff]|$)")

_LONGEST_PATH = 512
"""The longest path that is looked at; names of models and responses are far shorter."""


def find_endpoint(method: str, path: str) -> Endpoint | Refused:
    """The endpoint of a request. `path` is the request target up to its `?`, not decoded.

    `OPTIONS` of a known path is passed on unmetered: a browser asks before it sends (CORS), and
    the engine knows whom it lets in.
    """
    endpoint = ENDPOINTS.get(path) or _find_by_prefix(path)
    if endpoint is None:
        return Refused(status=404)
    if method in endpoint.methods:
        return endpoint
    if method == "OPTIONS":
        return replace(
            endpoint,
            dialect=Dialect.OTHER,
            methods=frozenset({"OPTIONS"}),
            metered=False,
            body=BodyKind.NONE,
            priority_by=PriorityBy.NOTHING,
            runs_model=False,
        )
    return Refused(status=405, allowed_methods=tuple(sorted(endpoint.methods)))


def _find_by_prefix(path: str) -> Endpoint | None:
    if len(path) > _LONGEST_PATH or _DOT_SEGMENT.search(path):
        return None
    if _MODEL_PATH.fullmatch(path):
        return _ONE_MODEL
    match = _RESPONSE_PATH.fullmatch(path)
    if match is None:
        return None
    return _CANCEL_RESPONSE if match["cancel"] else _ONE_RESPONSE
