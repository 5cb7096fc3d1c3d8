"""What does the engine's answer tell while it passes?

The reader is given the body's bytes as they come, cut anywhere, and never changes or delays them.
What it says depends on the bytes alone and not on the cuts. Three kinds of body:

- an event stream: read line by line, since an engine writes each event's JSON on one line. Events
  between the first and the last of a stream differ in their text only. The reader remembers how one
  of them begins and ends, and then recognises the others without decoding them.
- a JSON document: its two ends are kept, and read when it is complete (`answer_documents`).
- anything else (an error, a compressed body): only that something came.
"""

import re
from typing import Final

from giveway_scheduler import Usage

from giveway_admission.answer_documents import AnswerDocument, decode_json, is_failure
from giveway_admission.endpoints import Dialect, Endpoint
from giveway_admission.usage_reading import UsageReport

LONGEST_LINE_BYTES: Final = 2**20
"""A longer line of a stream is passed over: `response.completed` repeats the whole answer, and even
that stays far below."""

_SKIPPED = b"\0"
"""Stands for what was dropped of a line that is too long, so that the line counts as begun."""

_MOST_TEMPLATES = 16
"""Streams of several answers have one template each."""

_WAITING = frozenset({"response.created", "response.in_progress", "response.queued"})
"""Events that /v1/responses sends before the request had its turn."""

_TEXT_START = re.compile(rb'"(?:content|reasoning|reasoning_content|text|arguments)":"')
"""Where the changing part of an ordinary chat or completions event begins. Inside of a text the
quotes would be escaped."""
_TEXT_END = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+(?=")', re.DOTALL)

_NAMED_DELTA = re.compile(rb"event: (?:response\.[a-z_.]+\.delta|content_block_delta)")


class AnswerReader:
    """Reads one answer. `feed` each piece of its body, then `end` if the body is complete.

    `streams` tells what the answer is (its content type is an event stream), not what was asked.
    `encoded`: the body is compressed, so that nothing can be read of it.
    """

    __slots__ = (
        "_dialect",
        "_document",
        "_line_ends",
        "_lines",
        "_named_delta",
        "_pending",
        "_prefixes",
        "_readable",
        "_report",
        "_skipping",
        "_streams",
        "_suffixes",
        "events",
        "failed",
        "finished",
        "first_token_seen",
    )

    def __init__(self, endpoint: Endpoint, *, streams: bool, status: int, encoded: bool) -> None:
        self.first_token_seen = False
        """The engine has begun to answer: the prompt is prefilled."""
        self.events = 0
        """Events of a stream that carried output. Engines merge tokens, so at most their number."""
        self.failed = False
        """The answer says, after a good status, that it was not finished."""
        self.finished = False
        """The answer's own end was seen."""
        self._dialect = endpoint.dialect
        self._readable = 200 <= status < 300 and not encoded
        self._streams = streams
        self._report = UsageReport(endpoint.dialect)
        self._document = None if streams else AnswerDocument()
        self._pending = bytearray()
        self._skipping = False
        self._prefixes: tuple[bytes, ...] = ()
        self._suffixes: tuple[bytes, ...] = ()
        self._line_ends: tuple[bytes, ...] = ()
        self._lines = 0
        self._named_delta = b""

    @property
    def usage(self) -> Usage | None:
        """Prompt and output tokens as the engine reported them last. None: it did not, or lied."""
        return self._report.reported()

    @property
    def usage_doubtful(self) -> bool:
        """The engine reported something that can't be true; it was left out."""
        return self._report.doubtful

    def charge(self, *, prompt_tokens: int) -> Usage:
        """What to charge: as reported, where it was; else our estimate and the events counted."""
        return self._report.charge(prompt_tokens=prompt_tokens, output_tokens=self.events)

    def feed(self, data: bytes) -> None:
        """The next piece of the body, in any cut."""
        if (
            data.startswith(self._prefixes)
            and data.endswith(self._suffixes)
            and data.count(b"\n") == self._lines
            and not self._pending
        ):
            self.events += 1  # one whole ordinary event: nearly all pieces are like this
            return
        if not data:
            return
        if self._streams and self._readable:
            self._feed_lines(data)
        else:
            self.first_token_seen = True
            if self._readable and self._document is not None:
                self._document.feed(data)

    def end(self) -> None:
        """The body is complete, as HTTP sees it."""
        if not self._readable:
            self.finished = True
        elif self._streams:
            line, self._pending = bytes(self._pending), bytearray()
            if line and not self._skipping:
                self._read_line(line)
            if not self.finished:
                self.failed = True  # ended without the dialect's own end
        elif self._document is not None:
            self.finished = True
            self._document.end()
            self.failed = self._document.failed
            self._report.add(self._document.usage_report)

    def _feed_lines(self, data: bytes) -> None:
        end = data.rfind(b"\n") + 1
        if end:
            block = bytes(self._pending) + data[:end] if self._pending else data[:end]
            self._pending.clear()
            for line in block.split(b"\n")[:-1]:
                if self._skipping:
                    self._skipping = False  # the rest of a line that was too long
                elif line and len(line) <= LONGEST_LINE_BYTES:
                    self._read_line(line)
        self._pending += data[end:]
        if len(self._pending) > LONGEST_LINE_BYTES:
            self._pending[:] = _SKIPPED
            self._skipping = True

    def _read_line(self, line: bytes) -> None:
        """One line of a stream, without its end. Comments, names and ids say nothing to us."""
        if line.startswith(self._prefixes) and line.endswith(self._line_ends):
            self.events += 1  # an ordinary one among others in one piece
            return
        if not line.startswith(b"data:"):
            self._named_delta = line if _NAMED_DELTA.fullmatch(line) else b""
            return
        text = line[5:].strip()
        if text == b"[DONE]":
            self.finished = True
            return
        event = decode_json(text)
        if not isinstance(event, dict):
            return
        match self._dialect:
            case Dialect.ANTHROPIC_MESSAGES:
                ordinary = self._read_messages_event(event)
            case Dialect.OPENAI_RESPONSES:
                ordinary = self._read_responses_event(event)
            case _:
                ordinary = self._read_choices_event(event)
        if ordinary:
            self.events += 1
            self._learn(line)

    def _read_choices_event(self, event: dict[object, object]) -> bool:
        """True for an event with output and nothing else worth noting."""
        if event.get("error") is not None:
            self.failed = True
            return False
        usage = event.get("usage")
        if usage is not None:
            self._report.add(usage)
        output = ending = False
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            # vLLM sends even the empty first delta only together with the first token.
            self.first_token_seen = True
            reason = choice.get("finish_reason")
            if reason is not None:
                self.finished = ending = True
                self.failed = self.failed or is_failure(reason)
            output = output or _has_output(choice)
        if output and (ending or usage is not None):
            self.events += 1
            return False
        return output

    def _read_messages_event(self, event: dict[object, object]) -> bool:
        match event.get("type"):
            case "content_block_delta":
                self.first_token_seen = True
                return True
            case "message_start":
                message = event.get("message")
                if isinstance(message, dict):
                    self._report.add(message.get("usage"), final=False)
            case "message_delta":
                self.first_token_seen = True
                self._report.add(event.get("usage"))
                delta = event.get("delta")
                if not isinstance(delta, dict) or delta.get("stop_reason") is None:
                    self.failed = True  # how vLLM says "abort" in this dialect
            case "message_stop":
                self.finished = True
            case "error":
                self.failed = True
            case "ping" | None:
                if event.get("error") is not None:
                    self.failed = True
            case _:
                self.first_token_seen = True
        return False

    def _read_responses_event(self, event: dict[object, object]) -> bool:
        kind = event.get("type")
        if not isinstance(kind, str):
            self.failed = self.failed or event.get("error") is not None
            return False
        if kind.endswith(".delta"):
            self.first_token_seen = True
            return True
        if kind in ("error", "response.failed", "response.cancelled"):
            self.failed = True
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self.finished = True
            response = event.get("response")
            if isinstance(response, dict):
                self._report.add(response.get("usage"))
        if kind not in _WAITING and not self.failed:
            self.first_token_seen = True
        return False

    def _learn(self, line: bytes) -> None:
        """Remember how an ordinary event looks around its text."""
        if len(self._prefixes) >= _MOST_TEMPLATES or len(self._suffixes) >= _MOST_TEMPLATES:
            return
        if self._dialect in (Dialect.ANTHROPIC_MESSAGES, Dialect.OPENAI_RESPONSES):
            if not self._named_delta:
                return
            prefix, suffix, self._lines = self._named_delta + b"\ndata: {", b"}\n\n", 3
            self._named_delta = b""
        else:
            starts = list(_TEXT_START.finditer(line))
            text_end = _TEXT_END.match(line, starts[0].end()) if len(starts) == 1 else None
            if text_end is None:
                return
            prefix, suffix = line[: starts[0].end()], line[text_end.end() :] + b"\n\n"
            self._lines = 2
        if prefix not in self._prefixes:
            self._prefixes += (prefix,)
        if suffix not in self._suffixes:
            self._suffixes += (suffix,)
            self._line_ends += (suffix[:-2],)


def _has_output(choice: dict[object, object]) -> bool:
    """Does a choice of a streamed event bring any output?"""
    if choice.get("text"):
        return True
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return False
    return any(value and name != "role" for name, value in delta.items())
