"""What do vLLM's answers look like, whole and as events?

One class per endpoint, all with the same three calls: `begin` when the request was accepted (the
head of a stream goes out at once, before the request's turn), `token` for each token of each
sequence, `abort` when the engine is shut down below it. Key order and spacing are vLLM 0.32's
Python frontend's, compared with recordings of it.

A client that reads too slowly gets fewer and longer events, as from vLLM: what came out while its
connection was full goes out together with the next token.
"""

import base64
import json
import struct
from datetime import UTC, datetime
from typing import Protocol

from giveway_simulation.emulator_http import Exchange
from giveway_simulation.emulator_requests import Api, Asked

VERSION = "0.32.0"
FINGERPRINT = f"vllm-{VERSION}-e3a1007e"
EMBEDDING_DIMENSIONS = 64

_FILLER = (
    " the one who may ask for two and get six out was not far all day did see her way can try new"
    " sea sky red air ice sun oak elm ash ivy fig bay dew fog"
)
_WORDS = tuple(_FILLER[at : at + 4] for at in range(0, len(_FILLER), 4))
"""Each is one token of four bytes, and needs no escaping in JSON."""


class Answer(Protocol):
    """The answer to one request while it is made."""

    def begin(self) -> None: ...

    def token(self, index: int, *, finished: bool) -> None: ...

    def abort(self) -> None: ...


def now_epoch_s() -> int:
    return int(datetime.now(UTC).timestamp())


def filler(seed: int, *, start: int, count: int) -> str:
    """Tokens `start` to `start + count` of the text that `seed` stands for."""
    words = len(_WORDS)
    return "".join([_WORDS[(seed + at * 7) % words] for at in range(start, start + count)])


def to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def make_answer(asked: Asked, exchange: Exchange, *, name: str) -> Answer:
    """`name` is the id without its prefix."""
    match asked.api:
        case Api.CHAT:
            return _ChatAnswer(asked, exchange, name=name)
        case Api.COMPLETIONS:
            return _CompletionAnswer(asked, exchange, name=name)
        case Api.RESPONSES:
            return _ResponsesAnswer(asked, exchange, name=name)
        case Api.MESSAGES:
            return _MessagesAnswer(asked, exchange, name=name)
        case Api.EMBEDDINGS:
            return _EmbeddingsAnswer(asked, exchange, name=name)


class _GeneratedAnswer:
    """What the four generating endpoints share: counting tokens, merging, ending."""

    prefix = ""

    def __init__(self, asked: Asked, exchange: Exchange, *, name: str) -> None:
        self._asked = asked
        self._exchange = exchange
        self._id = self.prefix + name
        self._created = now_epoch_s()
        count = len(asked.output_tokens)
        self._generated = [0] * count
        self._sent = [0] * count
        self._reasons: list[str | None] = [None] * count
        self._left = count

    def begin(self) -> None:
        if self._asked.streams:
            self._exchange.begin_events()
            events = self._opening()
            if events:
                self._exchange.send(events)

    def token(self, index: int, *, finished: bool) -> None:
        self._generated[index] += 1
        if finished:
            short = self._generated[index] < self._asked.maximum_tokens
            self._reasons[index] = "stop" if short else "length"
            self._left -= 1
        if not self._asked.streams:
            if not self._left:
                self._exchange.answer(200, to_json(self._whole()))
            return
        if self._exchange.congested and not finished:
            return
        events = self._events(index)
        if not self._left:
            events += self._closing()
        self._exchange.send(events)
        if not self._left:
            self._exchange.end()

    def abort(self) -> None:
        unfinished = [at for at, reason in enumerate(self._reasons) if reason is None]
        for index in unfinished:
            self._reasons[index] = "abort"
        self._left = 0
        if self._asked.streams:
            events = [event for index in unfinished for event in self._events(index)]
            self._exchange.send(events + self._closing())
            self._exchange.end()
        else:
            self._exchange.answer(200, to_json(self._whole()))

    def _text(self, index: int, *, start: int = 0) -> str:
        count = self._generated[index] - start
        return filler(self._asked.seed + index, start=start, count=count)

    def _take_text(self, index: int) -> str:
        """What was generated since the last event."""
        text = self._text(index, start=self._sent[index])
        self._sent[index] = self._generated[index]
        return text

    def _usage(self) -> dict[str, object]:
        prompt = self._asked.prompt_tokens
        completion = sum(self._generated)
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
        }

    def _whole_usage(self) -> dict[str, object]:
        return self._usage() | {"prompt_tokens_details": None, "completion_tokens_details": None}

    def _opening(self) -> list[bytes]:
        return []

    def _events(self, index: int) -> list[bytes]:
        raise AssertionError(f"{type(self).__name__} does not stream {index}")

    def _closing(self) -> list[bytes]:
        return []

    def _whole(self) -> dict[str, object]:
        raise AssertionError(f"{type(self).__name__} has no whole answer")


class _OpenAiAnswer(_GeneratedAnswer):
    """Chat and completions: `data:` events with choices, an event with usage, `[DONE]`."""

    chunk_object = ""

    def __init__(self, asked: Asked, exchange: Exchange, *, name: str) -> None:
        super().__init__(asked, exchange, name=name)
        # Everything of an ordinary event but its text, made once: the text needs no escaping.
        self._head = (
            f'data: {{"id":{json.dumps(self._id)},"object":"{self.chunk_object}",'
            f'"created":{self._created},"model":{json.dumps(asked.model)},"choices":['
        )

    def _events(self, index: int) -> list[bytes]:
        events: list[bytes] = []
        if not self._sent[index]:
            events += self._first_events(index)
        reason = self._reasons[index]
        choice = self._choice(index, self._take_text(index), reason=reason)
        tail = f",{self._usage_so_far()}" if self._asked.continuous_usage else ""
        if reason is not None and not self._asked.usage:
            tail += f',"system_fingerprint":"{FINGERPRINT}"'
        events.append(f"{self._head}{choice}]{tail}}}\n\n".encode())
        return events

    def _closing(self) -> list[bytes]:
        events: list[bytes] = []
        if self._asked.usage:
            usage = to_json(self._usage()).decode()
            events.append(
                f'{self._head}],"usage":{usage},"system_fingerprint":"{FINGERPRINT}"}}\n\n'.encode()
            )
        events.append(b"data: [DONE]\n\n")
        return events

    def _first_events(self, index: int) -> list[bytes]:  # noqa: ARG002
        return []

    def _usage_so_far(self) -> str:
        return f'"usage":{to_json(self._usage()).decode()}'

    def _choice(self, index: int, text: str, *, reason: str | None) -> str:
        raise AssertionError(f"{type(self).__name__} has no choices: {index} {text} {reason}")


class _ChatAnswer(_OpenAiAnswer):
    prefix = "chatcmpl-"
    chunk_object = "chat.completion.chunk"

    def _first_events(self, index: int) -> list[bytes]:
        usage = ""
        if self._asked.continuous_usage:
            prompt = self._asked.prompt_tokens
            usage = (
                f'"usage":{{"prompt_tokens":{prompt},"total_tokens":{prompt},'
                '"completion_tokens":0,"completion_tokens_details":null},'
            )
        return [
            f'{self._head}{{"index":{index},"delta":{{"role":"assistant","content":""}},'
            f'"logprobs":null,"finish_reason":null}}],{usage}'
            '"prompt_token_ids":null,"prompt_text":null}\n\n'.encode()
        ]

    def _usage_so_far(self) -> str:
        usage = self._usage() | {"completion_tokens_details": None}
        return f'"usage":{to_json(usage).decode()}'

    def _choice(self, index: int, text: str, *, reason: str | None) -> str:
        end = "null" if reason is None else f'"{reason}","stop_reason":null'
        return (
            f'{{"index":{index},"delta":{{"content":"{text}"}},"logprobs":null,'
            f'"finish_reason":{end},"token_ids":null}}'
        )

    def _whole(self) -> dict[str, object]:
        return {
            "id": self._id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._asked.model,
            "choices": [
                {
                    "index": index,
                    "message": {
                        "role": "assistant",
                        "content": self._text(index),
                        "refusal": None,
                        "annotations": None,
                        "audio": None,
                        "function_call": None,
                        "reasoning": None,
                    },
                    "logprobs": None,
                    "finish_reason": reason,
                    "stop_reason": None,
                    "token_ids": None,
                    "routed_experts": None,
                }
                for index, reason in enumerate(self._reasons)
            ],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": self._whole_usage(),
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }


class _CompletionAnswer(_OpenAiAnswer):
    prefix = "cmpl-"
    chunk_object = "text_completion"

    def _choice(self, index: int, text: str, *, reason: str | None) -> str:
        end = "null" if reason is None else f'"{reason}"'
        return (
            f'{{"index":{index},"text":"{text}","logprobs":null,"finish_reason":{end},'
            '"stop_reason":null,"prompt_token_ids":null,"token_ids":null}'
        )

    def _whole(self) -> dict[str, object]:
        asked = self._asked
        prompts = [prompt.text for prompt in asked.prompts for _ in range(asked.answers)]
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": asked.model,
            "choices": [
                {
                    "index": index,
                    "text": (prompts[index] if asked.echo else "") + self._text(index),
                    "logprobs": None,
                    "finish_reason": reason,
                    "stop_reason": None,
                    "token_ids": None,
                    "prompt_logprobs": None,
                    "prompt_token_ids": None,
                    "routed_experts": None,
                }
                for index, reason in enumerate(self._reasons)
            ],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": self._whole_usage(),
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }


class _MessagesAnswer(_GeneratedAnswer):
    prefix = "chatcmpl-"

    def _stop_reason(self) -> str | None:
        return {"length": "max_tokens", "stop": "end_turn"}.get(self._reasons[0] or "")

    def _message_usage(self) -> dict[str, object]:
        return {"input_tokens": self._asked.prompt_tokens, "output_tokens": self._generated[0]}

    def _events(self, index: int) -> list[bytes]:
        events: list[bytes] = []
        if not self._sent[index]:
            events = self._first_events()
        text = self._take_text(index)
        if text:
            events.append(
                b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":'
                b'{"type":"text_delta","text":"%b"},"index":0}\n\n' % text.encode()
            )
        return events

    def _first_events(self) -> list[bytes]:
        message: dict[str, object] = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self._asked.model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": self._asked.prompt_tokens, "output_tokens": 0},
        }
        return [
            _named({"type": "message_start", "message": message}),
            _named(
                {
                    "type": "content_block_start",
                    "content_block": {"type": "text", "text": ""},
                    "index": 0,
                }
            ),
        ]

    def _closing(self) -> list[bytes]:
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        return [
            _named({"type": "content_block_stop", "index": 0}),
            _named({"type": "message_delta", "delta": delta, "usage": self._message_usage()}),
            _named({"type": "message_stop"}),
        ]

    def _whole(self) -> dict[str, object]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": self._text(0)}],
            "model": self._asked.model,
            "stop_reason": self._stop_reason(),
            "usage": self._message_usage(),
        }


class _ResponsesAnswer(_GeneratedAnswer):
    prefix = "resp_"

    def __init__(self, asked: Asked, exchange: Exchange, *, name: str) -> None:
        super().__init__(asked, exchange, name=name)
        self._message_id = f"msg_{name}"
        self._number = 0

    def _opening(self) -> list[bytes]:
        return [
            self._numbered({"response": self._response(status="in_progress")}, kind=kind)
            for kind in ("response.created", "response.in_progress")
        ]

    def _events(self, index: int) -> list[bytes]:
        events: list[bytes] = []
        if not self._sent[index]:
            events = self._first_events()
        text = self._take_text(index)
        if text:
            delta = {"content_index": 0, "delta": text, "item_id": self._message_id}
            delta |= {"logprobs": [], "output_index": 0}
            events.append(self._numbered(delta, kind="response.output_text.delta"))
        return events

    def _first_events(self) -> list[bytes]:
        item = self._item(content=[], status="in_progress")
        part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
        return [
            self._numbered({"item": item, "output_index": 0}, kind="response.output_item.added"),
            self._numbered(
                {"content_index": 0, "item_id": self._message_id, "output_index": 0, "part": part},
                kind="response.content_part.added",
            ),
        ]

    def _closing(self) -> list[bytes]:
        text = self._text(0)
        place = {"content_index": 0, "item_id": self._message_id}
        return [
            self._numbered(
                place | {"logprobs": [], "output_index": 0},
                kind="response.output_text.done",
                last={"text": text},
            ),
            self._numbered(
                place | {"output_index": 0, "part": _text_part(text)},
                kind="response.content_part.done",
            ),
            self._numbered(
                {
                    "item": self._item(content=[_text_part(text)], status="completed"),
                    "output_index": 0,
                },
                kind="response.output_item.done",
            ),
            self._numbered({"response": self._whole()}, kind="response.completed"),
        ]

    def _numbered(
        self, fields: dict[str, object], *, kind: str, last: dict[str, object] | None = None
    ) -> bytes:
        fields = fields | {"sequence_number": self._number} | (last or {}) | {"type": kind}
        self._number += 1
        return _named(fields)

    def _item(self, *, content: list[object], status: str) -> dict[str, object]:
        return {
            "id": self._message_id,
            "content": content,
            "role": "assistant",
            "status": status,
            "type": "message",
            "phase": None,
        }

    def _whole(self) -> dict[str, object]:
        cut = self._reasons[0] == "length"
        return self._response(
            status="incomplete" if cut else "completed",
            reason={"reason": "max_output_tokens"} if cut else None,
            output=[self._item(content=[_text_part(self._text(0))], status="completed")],
            usage={
                "input_tokens": self._asked.prompt_tokens,
                "input_tokens_details": {
                    "cached_tokens": 0,
                    "cache_write_tokens": 0,
                    "input_tokens_per_turn": [],
                    "cached_tokens_per_turn": [],
                },
                "output_tokens": self._generated[0],
                "output_tokens_details": {
                    "reasoning_tokens": 0,
                    "tool_output_tokens": 0,
                    "output_tokens_per_turn": [],
                    "tool_output_tokens_per_turn": [],
                },
                "total_tokens": self._asked.prompt_tokens + self._generated[0],
            },
        )

    def _response(
        self,
        *,
        status: str,
        reason: object = None,
        output: list[object] | None = None,
        usage: object = None,
    ) -> dict[str, object]:
        return {
            "id": self._id,
            "created_at": self._created,
            "incomplete_details": reason,
            "instructions": None,
            "metadata": None,
            "model": self._asked.model,
            "object": "response",
            "output": output or [],
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "none",
            "tools": [],
            "top_p": 1.0,
            "background": False,
            "max_output_tokens": self._asked.maximum_tokens,
            "max_tool_calls": None,
            "previous_response_id": None,
            "prompt": None,
            "reasoning": None,
            "service_tier": "auto",
            "status": status,
            "text": None,
            "top_logprobs": None,
            "truncation": "disabled",
            "usage": usage,
            "user": None,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "input_messages": None,
            "output_messages": None,
        }


class _EmbeddingsAnswer(_GeneratedAnswer):
    prefix = "embd-"

    def _whole(self) -> dict[str, object]:
        tokens = self._asked.prompt_tokens
        return {
            "id": self._id,
            "object": "list",
            "created": self._created,
            "model": self._asked.model,
            "data": [
                {"index": index, "object": "embedding", "embedding": self._embedding(index)}
                for index in range(len(self._asked.prompts))
            ],
            "usage": {
                "prompt_tokens": tokens,
                "total_tokens": tokens,
                "completion_tokens": 0,
                "prompt_tokens_details": None,
            },
        }

    def _embedding(self, index: int) -> list[float] | str:
        """A vector of length 1 that the seed decides."""
        raw = [
            (self._asked.seed * 31 + index * 17 + at * at * 7) % 97 - 48.0
            for at in range(EMBEDDING_DIMENSIONS)
        ]
        length = sum(value * value for value in raw) ** 0.5 or 1.0
        vector = [value / length for value in raw]
        if self._asked.base64:
            return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        return vector


def _named(fields: dict[str, object]) -> bytes:
    """An event that carries its type as its name."""
    return b"event: %b\ndata: %b\n\n" % (str(fields["type"]).encode(), to_json(fields))


def _text_part(text: str) -> dict[str, object]:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
