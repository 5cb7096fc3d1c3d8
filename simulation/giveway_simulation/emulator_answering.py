"""What do all answers have in common? Counting tokens, merging them, ending.

An answer is called `begin` when its request was accepted (the head of a stream goes out at once,
before the request's turn), `token` for each token of each sequence, `abort` when the engine is shut
down below it.

A client that reads too slowly gets fewer and longer events, as from vLLM: what came out while its
connection was full goes out together with the next token.
"""

import json
from datetime import UTC, datetime

from giveway_simulation.emulator_http import Exchange
from giveway_simulation.emulator_requests import Asked

_FILLER = (
    " the one who may ask for two and get six out was not far all day did see her way can try new"
    " sea sky red air ice sun oak elm ash ivy fig bay dew fog"
)
_WORDS = tuple(_FILLER[at : at + 4] for at in range(0, len(_FILLER), 4))
"""Each is one token of four bytes, and needs no escaping in JSON."""


def now_epoch_s() -> int:
    return int(datetime.now(UTC).timestamp())


def filler(seed: int, *, start: int, count: int) -> str:
    """Tokens `start` to `start + count` of the text that `seed` stands for."""
    words = len(_WORDS)
    return "".join([_WORDS[(seed + at * 7) % words] for at in range(start, start + count)])


def to_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class GeneratedAnswer:
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


def named(fields: dict[str, object]) -> bytes:
    """An event that carries its type as its name."""
    return b"event: %b\ndata: %b\n\n" % (str(fields["type"]).encode(), to_json(fields))
