"""What do answers of /v1/chat/completions and /v1/completions look like, whole and as events?

Key order and spacing are those of vLLM 0.32's Python frontend.
"""

import json

from giveway_simulation.emulator_answering import GeneratedAnswer, to_json
from giveway_simulation.emulator_http import Exchange
from giveway_simulation.emulator_requests import Asked

VERSION = "0.32.0"
FINGERPRINT = f"vllm-{VERSION}-e3a1007e"


class _OpenAiAnswer(GeneratedAnswer):
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


class ChatAnswer(_OpenAiAnswer):
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


class CompletionAnswer(_OpenAiAnswer):
    prefix = "cmpl-"
    chunk_object = "text_completion"

    def _take_text(self, index: int) -> str:
        is_first = not self._sent[index]
        text = super()._take_text(index)
        if is_first and self._asked.echo:
            # Inside JSON, as all that this method returns.
            return json.dumps(self._asked.prompts[index // self._asked.answers].text)[1:-1] + text
        return text

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
