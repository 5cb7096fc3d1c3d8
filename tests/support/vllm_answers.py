"""What does a vLLM write on the wire?

Builders for whole HTTP responses and single SSE events in the shapes of vLLM 0.32, for scripted
engines. Nothing here is checked against an engine at run time; `tests/vllm` does that.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

JSON_TYPE = "application/json"
EVENT_STREAM_TYPE = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


def response(
    body: bytes,
    *,
    status: int = 200,
    reason: str = "OK",
    content_type: str = JSON_TYPE,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """A whole response with its length."""
    lines = [
        f"HTTP/1.1 {status} {reason}",
        "server: uvicorn",
        f"content-length: {len(body)}",
        f"content-type: {content_type}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def json_response(
    value: object,
    *,
    status: int = 200,
    reason: str = "OK",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """A whole JSON response."""
    return response(json.dumps(value).encode(), status=status, reason=reason, headers=headers)


def stream_head(headers: Mapping[str, str] | None = None) -> bytes:
    """The head of an event stream: comes before the request's turn in a real engine."""
    lines = [
        "HTTP/1.1 200 OK",
        "server: uvicorn",
        f"content-type: {EVENT_STREAM_TYPE}",
        "transfer-encoding: chunked",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One HTTP chunk. vLLM sends one per event."""
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def event(value: object, *, name: str | None = None) -> bytes:
    """One SSE event (not chunked yet)."""
    data = b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"
    return data if name is None else b"event: " + name.encode() + b"\n" + data


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """OpenAI's usage object of chat and completions."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }


def chat_answer(*, prompt_tokens: int = 10, completion_tokens: int = 5, text: str = "hi") -> bytes:
    """A whole plain chat answer."""
    return json_response(
        {
            "id": "chatcmpl-0123456789abcdef",
            "object": "chat.completion",
            "created": 1764000000,
            "model": "scripted",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": usage(prompt_tokens, completion_tokens),
        }
    )


def completion_answer(*, prompt_tokens: int = 10, completion_tokens: int = 5) -> bytes:
    """A whole plain completion."""
    return json_response(
        {
            "id": "cmpl-0123456789abcdef",
            "object": "text_completion",
            "created": 1764000000,
            "model": "scripted",
            "choices": [{"index": 0, "text": "hi", "finish_reason": "length"}],
            "usage": usage(prompt_tokens, completion_tokens),
        }
    )


def responses_answer(*, input_tokens: int = 10, output_tokens: int = 5) -> bytes:
    """A whole plain answer of /v1/responses."""
    return json_response(
        {
            "id": "resp_0123456789abcdef",
            "object": "response",
            "created_at": 1764000000,
            "model": "scripted",
            "status": "completed",
            "output": [
                {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "hi", "annotations": []}],
                }
            ],
            "usage": {
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "total_tokens": input_tokens + output_tokens,
            },
        }
    )


def messages_answer(*, input_tokens: int = 10, output_tokens: int = 5) -> bytes:
    """A whole plain answer of /v1/messages."""
    return json_response(
        {
            "id": "chatcmpl-0123456789abcdef",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": [{"type": "text", "text": "hi"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": input_tokens, "output_tokens": output_tokens},
        }
    )


def embeddings_answer(*, vectors: int = 1, prompt_tokens: int = 10) -> bytes:
    """A whole answer of /v1/embeddings."""
    return json_response(
        {
            "id": "embd-0123456789abcdef",
            "object": "list",
            "created": 1764000000,
            "model": "scripted",
            "data": [
                {"index": index, "object": "embedding", "embedding": [0.5, -0.25]}
                for index in range(vectors)
            ],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "total_tokens": prompt_tokens,
                "completion_tokens": 0,
            },
        }
    )


def models_answer() -> bytes:
    """The answer of GET /v1/models."""
    return json_response(
        {
            "object": "list",
            "data": [
                {"id": "scripted", "object": "model", "owned_by": "vllm", "max_model_len": 32768}
            ],
        }
    )


def error_answer(status: int, reason: str, message: str, **headers: str) -> bytes:
    """An error in vLLM's shape."""
    return json_response(
        {"error": {"message": message, "type": reason, "param": None, "code": status}},
        status=status,
        reason=reason,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def chat_chunk(
    *,
    text: str | None = None,
    role: str | None = None,
    finish_reason: str | None = None,
    with_usage: Mapping[str, int] | None = None,
    choices: bool = True,
) -> bytes:
    """One `chat.completion.chunk` event."""
    delta: dict[str, object] = {}
    if role is not None:
        delta["role"] = role
    if text is not None:
        delta["content"] = text
    value: dict[str, object] = {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1764000000,
        "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]
        if choices
        else [],
    }
    if with_usage is not None:
        value["usage"] = dict(with_usage)
    return event(value)


def chat_events(
    texts: Sequence[str], *, prompt_tokens: int = 10, include_usage: bool = False
) -> list[bytes]:
    """All events of a chat stream: role, one per text, finish, usage if asked for, done."""
    events = [chat_chunk(role="assistant", text="")]
    last = len(texts) - 1
    events += [
        chat_chunk(text=text, finish_reason="stop" if index == last else None)
        for index, text in enumerate(texts)
    ]
    if include_usage:
        events.append(chat_chunk(with_usage=usage(prompt_tokens, len(texts)), choices=False))
    return [*events, DONE]


def chunked(events: Iterable[bytes]) -> bytes:
    """Events as HTTP chunks with the end of the body."""
    return b"".join(chunk(item) for item in events) + LAST_CHUNK


def wants_usage(body: bytes) -> bool:
    """Does the request ask for the usage event at the end of its stream?"""
    options = json.loads(body).get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True
