"""Which paths may be reached?"""

import pytest
from giveway_admission.endpoints import (
    ENDPOINTS,
    BodyKind,
    Dialect,
    Endpoint,
    ErrorDialect,
    PriorityBy,
    Refused,
    find_endpoint,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("path", "dialect", "priority_by"),
    [
        ("/v1/chat/completions", Dialect.OPENAI_CHAT, PriorityBy.HEADER),
        ("/v1/completions", Dialect.OPENAI_COMPLETIONS, PriorityBy.HEADER),
        ("/v1/responses", Dialect.OPENAI_RESPONSES, PriorityBy.HEADER),
        ("/v1/messages", Dialect.ANTHROPIC_MESSAGES, PriorityBy.HEADER),
        ("/v1/embeddings", Dialect.EMBEDDINGS, PriorityBy.BODY),
        ("/pooling", Dialect.EMBEDDINGS, PriorityBy.BODY),
        ("/score", Dialect.EMBEDDINGS, PriorityBy.BODY),
        ("/v1/score", Dialect.EMBEDDINGS, PriorityBy.BODY),
        ("/rerank", Dialect.EMBEDDINGS, PriorityBy.BODY),
        ("/v1/rerank", Dialect.EMBEDDINGS, PriorityBy.BODY),
        ("/v2/rerank", Dialect.EMBEDDINGS, PriorityBy.BODY),
        ("/classify", Dialect.EMBEDDINGS, PriorityBy.BODY),
        ("/v1/audio/transcriptions", Dialect.OTHER, PriorityBy.NOTHING),
        ("/v1/audio/translations", Dialect.OTHER, PriorityBy.NOTHING),
        ("/tokenize", Dialect.OTHER, PriorityBy.NOTHING),
        ("/detokenize", Dialect.OTHER, PriorityBy.NOTHING),
        ("/v1/messages/count_tokens", Dialect.OTHER, PriorityBy.NOTHING),
    ],
)
def test_work_is_metered_by_every_path(
    path: str, dialect: Dialect, priority_by: PriorityBy
) -> None:
    """No other way to the engine's work is free (G06)."""
    endpoint = find_endpoint("POST", path)
    assert isinstance(endpoint, Endpoint)
    assert endpoint.metered
    assert (endpoint.dialect, endpoint.priority_by) == (dialect, priority_by)
    assert find_endpoint("GET", path) == Refused(status=405, allowed_methods=("POST",))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("GET", "/v1/models/tiny"),
        ("GET", "/v1/models/org/model-7B.v1"),
        ("GET", "/v1/models/org%2Fmodel"),
        ("GET", "/health"),
        ("GET", "/version"),
        ("GET", "/ping"),
        ("POST", "/ping"),
        ("GET", "/v1/responses/resp_0123"),
        ("DELETE", "/v1/responses/resp_0123"),
        ("POST", "/v1/responses/resp_0123/cancel"),
    ],
)
def test_questions_pass_unmetered(method: str, path: str) -> None:
    """What costs the engine nothing waits for nothing."""
    endpoint = find_endpoint(method, path)
    assert isinstance(endpoint, Endpoint)
    assert not endpoint.metered


@pytest.mark.parametrize(
    "path",
    [
        *("/metrics", "/load", "/invocations", "/sleep", "/wake_up", "/is_sleeping", "/docs"),
        *("/scale_elastic_ep", "/is_scaling_elastic_ep", "/reset_prefix_cache", "/openapi.json"),
        *("/collective_rpc", "/v1/load_lora_adapter", "/kv_event_sources", "/generative_scoring"),
        *("/inference/v1/generate", "/v1/chat/completions/batch", "/v1/completions/render"),
        *("/v1/systemone", "/start_profile", "/server_info", "/abort_requests", "/pause"),
        *("", "/", "/v1", "/v1/", "/V1/chat/completions", "/v1/chat/completions/"),
        *("//v1/chat/completions", "/v1//chat/completions", "/v1/chat/../completions"),
        *("/v1/chat/completions%00", "/v1/%63hat/completions", "/v1/chat/completions?x=1"),
        *("http://169.254.169.254/", "//host/x", "/v1/models/../../metrics", "/v1/models/.."),
        *("/v1/models/%2e%2e/metrics", "/v1/models/a%2F..%2F..%2Fmetrics", "/v1/models/"),
        *("/v1/models//x", "/v1/models/a/./b", "/v1/models/x y", "/v1/models/" + "x" * 600),
        *("/v1/responses/", "/v1/responses/../x", "/v1/responses/x/input_items"),
        *("/v1/responses/x/../cancel", "/v1/responses/./cancel", "*", "/health/", "/ping/x"),
    ],
)
def test_everything_else_is_not_found(path: str) -> None:
    """Control paths, odd spellings and foreign targets are refused alike (G06, G08)."""
    for method in ("GET", "POST", "OPTIONS", "CONNECT"):
        assert find_endpoint(method, path) == Refused(status=404)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD", "TRACE", "CONNECT", "post", ""])
def test_other_methods_are_not_allowed(method: str) -> None:
    """405 with what is allowed."""
    assert find_endpoint(method, "/v1/chat/completions") == Refused(
        status=405, allowed_methods=("POST",)
    )
    assert find_endpoint(method, "/ping") == Refused(status=405, allowed_methods=("GET", "POST"))


def test_a_browser_may_ask_first() -> None:
    """OPTIONS of a known path takes no seat and no tokens (A28)."""
    for path in (*ENDPOINTS, "/v1/models/x"):
        endpoint = find_endpoint("OPTIONS", path)
        assert isinstance(endpoint, Endpoint)
        assert not endpoint.metered
        assert endpoint.body is BodyKind.NONE


def test_errors_speak_the_dialect_of_the_path() -> None:
    """Anthropic's clients understand Anthropic's errors."""
    anthropic = {
        path
        for path, endpoint in ENDPOINTS.items()
        if endpoint.error_dialect is ErrorDialect.ANTHROPIC
    }
    assert anthropic == {"/v1/messages", "/v1/messages/count_tokens"}


@given(st.text(max_size=60), st.sampled_from(["", "/v1/models/", "/v1/responses/", "/v1/"]))
def test_any_path_is_found_or_refused(rest: str, begin: str) -> None:
    """And what is found by its begin has no way out of its folder."""
    found = find_endpoint("GET", begin + rest)
    if isinstance(found, Endpoint) and begin + rest not in ENDPOINTS:
        assert ".." not in rest.split("/")
        assert not found.metered
