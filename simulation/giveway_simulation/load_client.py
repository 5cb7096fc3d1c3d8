"""What does one client see of one streamed answer?

Each request has a connection of its own and asks for a stream. The measuring shares no code with
the proxy that it measures. What always holds: a request ends in exactly one `Ending`, and closing
its connection is how it is cancelled, which an engine sees as a client that left.
"""

import asyncio
import json
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

import httptools
import msgspec

from giveway_simulation.load_records import Ending, Measured, PlannedRequest
from giveway_simulation.prompt_building import PromptWriter

CONNECT_TIMEOUT_S = 10.0
_KEPT_ERROR_BYTES = 4096
_LONGEST_EVENT_BYTES = 2**20


class Api(StrEnum):
    """Which of the engine's interfaces is spoken."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"


class TargetError(ValueError):
    """The address of the engine is not one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the load goes."""

    host: str
    port: int
    path: str = ""
    """Prefix before `/v1/...`."""
    secure: bool = False
    model: str
    api: Api = Api.CHAT
    api_key: str | None = None

    @classmethod
    def parse(
        cls, url: str, *, model: str, api: Api = Api.CHAT, api_key: str | None = None
    ) -> "Target":
        """From a base URL with or without the trailing `/v1`; `TargetError` if it is none."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError as error:
            raise TargetError(f"{url!r}: {error}") from error
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise TargetError(f"{url!r} is not an address like http://127.0.0.1:8000")
        secure = parts.scheme == "https"
        return cls(
            host=parts.hostname,
            port=port or (443 if secure else 80),
            path=parts.path.rstrip("/").removesuffix("/v1"),
            secure=secure,
            model=model,
            api=api,
            api_key=api_key,
        )

    @property
    def address(self) -> str:
        """The base URL again, without `/v1`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.path}"


def connection_reason(error: OSError) -> str:
    """Why nothing could be reached, in the system's words alone: event loops add their own."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return (error.strerror or str(error) or "timed out").lower()


class LoadClient:
    """Sends requests to one target; measures each of them."""

    def __init__(self, target: Target, *, prompts: PromptWriter) -> None:
        self.target = target
        self._prompts = prompts
        self._tls = ssl.create_default_context() if target.secure else None

    def prepare(self, planned: PlannedRequest, *, words: int | None = None) -> bytes:
        """The bytes of a request. `words` overrides the prompt's length.

        Writing a long prompt takes longer than sending it: a load prepares before it starts.
        """
        return self._request(planned, words=words)

    async def ask(self, measured: Measured, *, zero_s: float, request: bytes) -> None:
        """Send one request and read its stream to the end. `zero_s` is on `time.monotonic`.

        Never raises but for cancellation, which closes the connection and leaves `ending` unset.
        """
        loop = asyncio.get_running_loop()
        answer = _Answer(measured, zero_s=zero_s, done=loop.create_future())
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                transport, _ = await loop.create_connection(
                    lambda: answer, self.target.host, self.target.port, ssl=self._tls
                )
        except (OSError, TimeoutError) as error:
            measured.error = f"cannot connect: {connection_reason(error)}"
            measured.ending, measured.end_s = Ending.FAILED, time.monotonic() - zero_s
            return
        try:
            transport.write(request)
            measured.sent_s = time.monotonic() - zero_s
            await answer.done
        finally:
            transport.abort()

    def _request(self, planned: PlannedRequest, *, words: int | None) -> bytes:
        target = self.target
        text = (
            self._prompts.write(planned.prompt_tokens)
            if words is None
            else self._prompts.write_words(words)
        )
        content: Mapping[str, object] = (
            {"messages": [{"role": "user", "content": text}]}
            if target.api is Api.CHAT
            else {"prompt": text}
        )
        body = json.dumps(
            {
                "model": target.model,
                **content,
                "max_tokens": planned.output_tokens,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        ).encode()
        head = [
            f"POST {target.path}{target.api} HTTP/1.1",
            f"Host: {target.host}:{target.port}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            f"Content-Length: {len(body)}",
            f"X-Giveway-Class: {planned.class_name}",
            f"X-Giveway-Tenant: {planned.tenant}",
        ]
        if target.api_key is not None:
            head.append(f"Authorization: Bearer {target.api_key}")
        return "\r\n".join([*head, "", ""]).encode() + body


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None

    def has_output(self) -> bool:
        """Does it carry text? The first event of a chat may carry the role alone, and an answer of
        a token or two may have none: its end is then its output."""
        delta = self.delta
        if delta is None:
            return bool(self.text)
        return bool(delta.content or delta.reasoning or delta.reasoning_content)


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: dict[str, object] | str | None = None


_decode_event = msgspec.json.Decoder(_Event).decode


class _Answer(asyncio.Protocol):
    """Reads one streamed answer. Every way it can end sets `measured.ending` once."""

    def __init__(self, measured: Measured, *, zero_s: float, done: asyncio.Future[None]) -> None:
        self.done = done
        self._measured = measured
        self._zero_s = zero_s
        self._parser = httptools.HttpResponseParser(self)
        self._pending = b""
        self._aborted = False

    def data_received(self, data: bytes) -> None:
        if self._measured.ending is not None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(Ending.FAILED, f"not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        if self.done.cancelled():
            return
        self._end(Ending.FAILED, f"connection lost{f': {exc}' if exc else ''}")

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-giveway-class":
            self._measured.served_class = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._measured.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        pending = self._pending + body if self._pending else body
        if (self._measured.status or 0) >= 400:
            self._pending = pending[:_KEPT_ERROR_BYTES]
            return
        if b"\r" in pending:
            pending = pending.replace(b"\r\n", b"\n")
        start = 0
        while (end := pending.find(b"\n\n", start)) >= 0:
            self._event(pending[start:end])
            start = end + 2
        self._pending = pending[start:] if start else pending
        if len(self._pending) > _LONGEST_EVENT_BYTES:
            self._end(Ending.FAILED, "an event of the stream is longer than 1 MiB")

    def on_message_complete(self) -> None:
        status = self._measured.status or 0
        if status >= 400:
            self._end(Ending.REFUSED, _error_text(self._pending))
        elif self._aborted:
            self._end(Ending.FAILED, self._measured.error or "the engine aborted the request")
        elif not self._measured.token_times_s:
            self._end(Ending.FAILED, "the answer ended without output")
        else:
            self._end(Ending.COMPLETED, None)

    def _event(self, event: bytes) -> None:
        if not event.startswith(b"data: ") or event == b"data: [DONE]":
            return
        measured = self._measured
        try:
            decoded = _decode_event(event[6:])
        except msgspec.DecodeError as error:
            self._aborted, measured.error = True, f"an event is not what it should be: {error}"
            return
        if decoded.error is not None:
            self._aborted, measured.error = True, _error_text(event[6:])
        if decoded.usage is not None:
            measured.usage_prompt_tokens = decoded.usage.prompt_tokens
            measured.usage_output_tokens = decoded.usage.completion_tokens
        for choice in decoded.choices:
            if choice.has_output() or (choice.finish_reason and not measured.token_times_s):
                measured.token_times_s.append(time.monotonic() - self._zero_s)
            if choice.finish_reason == "abort":
                self._aborted = True

    def _end(self, ending: Ending, error: str | None) -> None:
        measured = self._measured
        if measured.ending is None:
            measured.ending, measured.error = ending, error
            measured.end_s = time.monotonic() - self._zero_s
        if not self.done.done():
            self.done.set_result(None)


def _error_text(body: bytes) -> str:
    """The message of an OpenAI-like error, or the start of whatever it is."""
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)[:500]
    except (ValueError, LookupError, TypeError):
        return body[:200].decode(errors="replace") or "no explanation"
