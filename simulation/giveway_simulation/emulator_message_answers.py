"""What do answers of /v1/messages look like, whole and as events?"""

from giveway_simulation.emulator_answering import GeneratedAnswer, named


class MessagesAnswer(GeneratedAnswer):
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
            named({"type": "message_start", "message": message}),
            named(
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
            named({"type": "content_block_stop", "index": 0}),
            named({"type": "message_delta", "delta": delta, "usage": self._message_usage()}),
            named({"type": "message_stop"}),
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
