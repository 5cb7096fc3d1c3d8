"""What did a real vLLM write?

Transcripts of whole HTTP answers (`transcripts/`), for tests that must hold for the real thing
without starting it.
"""

from collections.abc import Iterator
from pathlib import Path

from tests.support.raw_client import Answer, parse_head

_FOLDER = Path(__file__).parent / "transcripts"


def names() -> list[str]:
    """All transcripts there are."""
    return sorted(path.stem for path in _FOLDER.glob("*.txt"))


def raw(name: str) -> bytes:
    """The whole answer: head, and body in whatever framing it had."""
    return (_FOLDER / f"{name}.txt").read_bytes()


def answer(name: str) -> Answer:
    """Head and decoded body."""
    head, _, body = raw(name).partition(b"\r\n\r\n")
    parsed = parse_head(head + b"\r\n\r\n")
    return Answer(head=parsed, body=b"".join(chunks(body)) if parsed.is_chunked else body)


def chunks(body: bytes) -> Iterator[bytes]:
    """The data of each HTTP chunk of a chunked body: one event each."""
    while True:
        line, _, rest = body.partition(b"\r\n")
        size = int(line, 16)
        if size == 0:
            return
        yield rest[:size]
        body = rest[size + 2 :]
