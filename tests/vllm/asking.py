"""How are the engine's endpoints asked in these tests, and what of an answer may differ by run?"""

import json
import re
import time
from dataclasses import dataclass, field

from tests.support.raw_client import PATIENCE_S, RawClient, request
from tests.vllm.real_engine import MODEL_NAME

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "embeddings": "/v1/embeddings",
}


def body_of(
    kind: str, *, tokens: int = 24, stream: bool = False, text: str = "Say something"
) -> dict[str, object]:
    """A request that is answered the same each time: greedy, and to the last token asked for."""
    messages = [{"role": "user", "content": text}]
    body: dict[str, object] = {"model": MODEL_NAME, "temperature": 0}
    match kind:
        case "chat":
            body |= {"messages": messages, "max_tokens": tokens, "ignore_eos": True}
        case "completions":
            body |= {"prompt": text, "max_tokens": tokens, "ignore_eos": True}
        case "responses":
            body |= {"input": text, "max_output_tokens": tokens}
        case "messages":
            body |= {"messages": messages, "max_tokens": tokens}
        case _:
            return {"model": MODEL_NAME, "input": [text, "another text"]}
    return body | {"stream": True} if stream else body


_VARYING = re.compile(
    rb'"(id|item_id|created|created_at|completed_at)": ?("[^"]*"|[0-9.]+)|'
    rb'"system_fingerprint": ?"[^"]*"'
)


def without_what_varies(body: bytes) -> bytes:
    """The body without ids and times of its run."""
    return _VARYING.sub(b'"varies"', body)


def text_of(body: bytes) -> str:
    """All text that a stream or a plain answer shows, in order."""
    shown: list[str] = []
    if not body.startswith((b"data:", b"event:")):
        _collect(json.loads(body), shown)
        return "".join(shown)
    for line in body.splitlines():
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            if event.get("type", "").endswith((".done", ".completed", ".added")):
                continue
            _collect(event, shown)
    return "".join(shown)


def _collect(value: object, shown: list[str]) -> None:
    """Texts under the keys that carry them."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("content", "text", "delta") and isinstance(item, str):
                shown.append(item)
            elif key not in ("message", "delta", "content", "choices", "output", "content_block"):
                continue
            else:
                _collect(item, shown)
    elif isinstance(value, list):
        for item in value:
            _collect(item, shown)


@dataclass(slots=True)
class Stream:
    """A stream that is read as it comes."""

    client: RawClient
    sent_s: float
    first_s: float | None = None
    """When the first text was there. None: not yet."""
    body: bytearray = field(default_factory=bytearray)

    @classmethod
    async def open(
        cls,
        url: str,
        kind: str,
        body: dict[str, object],
        headers: dict[str, str],
        *,
        patience_s: float = PATIENCE_S,
    ) -> "Stream":
        """Send the request and read nothing yet. `patience_s` bounds each later read."""
        client = await RawClient.open(url)
        client.patience_s = patience_s
        sent_s = time.monotonic()
        await client.send(request("POST", PATHS[kind], body=body, headers=headers))
        return cls(client, sent_s)

    async def until_text(self) -> float:
        """Read up to the first text; how long it took."""
        head = await self.client.read_head()
        assert head.status == 200, head.raw
        while self.first_s is None:
            self.body += await self.client.read_chunk()
            if text_of(_whole_events(bytes(self.body))):
                self.first_s = time.monotonic()
        return self.first_s - self.sent_s

    async def to_end(self) -> bytes:
        """Read the rest."""
        while data := await self.client.read_chunk():
            self.body += data
        await self.client.close()
        return bytes(self.body)


def _whole_events(data: bytes) -> bytes:
    return data[: data.rfind(b"\n\n") + 2]
