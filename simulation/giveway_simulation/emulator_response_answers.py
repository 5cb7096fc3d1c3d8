"""What do answers of /v1/responses look like, whole and as events?"""

from giveway_simulation.emulator_answering import GeneratedAnswer, named
from giveway_simulation.emulator_http import Exchange
from giveway_simulation.emulator_requests import Asked


class ResponsesAnswer(GeneratedAnswer):
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
        return named(fields)

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


def _text_part(text: str) -> dict[str, object]:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
