"""The ConfigMap through the API server: what is told counts, and no fault of the server ends it."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from giveway_admission.api_watching import ApiSettings, ApiWatch, backoff_s

from tests.support.waiting import until


class ScriptedApiServer:
    """Lists what `stored` is; each watch sends what is put into `events`. None ends a watch."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.version = 1
        self.events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.lists: list[dict[str, str]] = []
        self.watches: list[dict[str, str]] = []
        self.tokens: list[str] = []
        self.answer_status = 200
        self.url = ""

    def store(self, chat: str = "", *, big: bytes = b"") -> dict[str, Any]:
        """Documents chat.json and, packed, big.json.gz; empty: there is no such."""
        self.version += 1
        self.stored = {
            "metadata": {"uid": "u", "resourceVersion": str(self.version)},
            "data": {"chat.json": chat} if chat else {},
            "binaryData": {"big.json.gz": base64.b64encode(big).decode()} if big else {},
        }
        return self.stored

    def tell(self, kind: str, value: dict[str, Any]) -> None:
        self.events.put_nowait(json.dumps({"type": kind, "object": value}).encode() + b"\n")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization", ""))
        query = dict(request.query)
        if self.answer_status != 200:
            return web.json_response({"message": "no"}, status=self.answer_status)
        if "watch" not in query:
            self.lists.append(query)
            items = [] if self.stored is None else [self.stored]
            metadata = {"resourceVersion": str(self.version)}
            return web.json_response({"metadata": metadata, "items": items})
        self.watches.append(query)
        response = web.StreamResponse()
        await response.prepare(request)
        while (event := await self.events.get()) is not None:
            await response.write(event)
        return response


@pytest.fixture
async def server() -> AsyncIterator[ScriptedApiServer]:
    scripted = ScriptedApiServer()
    application = web.Application()
    application.router.add_get("/api/v1/namespaces/llm/configmaps", scripted.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    scripted.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield scripted
    scripted.events.put_nowait(None)
    await runner.cleanup()


@pytest.fixture
async def watch(server: ScriptedApiServer, tmp_path: Path) -> AsyncIterator[ApiWatch]:
    token = tmp_path / "token"
    token.write_text("one\n")
    settings = ApiSettings(
        namespace="llm",
        name="giveway-policy",
        url=server.url,
        token_file=token,
        first_backoff_s=0.01,
        largest_answer_bytes=2_000_000,
    )
    watch = ApiWatch(settings)
    task = asyncio.create_task(watch.run())
    yield watch
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def entries(watch: ApiWatch) -> dict[str, bytes]:
    return {name.rpartition(": ")[2]: data for name, data in watch.entries().items()}


async def test_what_is_there_counts_before_anything_is_told(
    server: ScriptedApiServer, watch: ApiWatch
) -> None:
    server.store("{}", big=b"\x1f\x8b")
    await until(lambda: entries(watch), what="it is listed")
    assert entries(watch) == {"chat.json": b"{}", "big.json.gz": b"\x1f\x8b"}
    await until(lambda: server.watches, what="it is watched")
    assert server.watches[0]["resourceVersion"] == str(server.version)
    assert server.lists[0] == {"fieldSelector": "metadata.name=giveway-policy"}


async def test_change_is_known_when_it_is_told(server: ScriptedApiServer, watch: ApiWatch) -> None:
    await until(lambda: server.watches, what="it is watched")
    before = watch.version
    server.tell("ADDED", server.store("one"))
    await until(lambda: entries(watch) == {"chat.json": b"one"}, what="the first is known")
    assert watch.version != before
    server.tell("MODIFIED", server.store("two" * 300_000))
    await until(lambda: len(entries(watch)["chat.json"]) > 800_000, what="the second is known")
    server.tell("DELETED", server.store())
    await until(lambda: entries(watch) == {}, what="it is gone")


async def test_watch_that_is_too_old_begins_anew_with_a_list(
    server: ScriptedApiServer, watch: ApiWatch
) -> None:
    await until(lambda: server.watches, what="it is watched")
    server.store("missed")
    server.tell("ERROR", {"code": 410, "message": "too old resource version"})
    await until(lambda: entries(watch) == {"chat.json": b"missed"}, what="it is listed anew")
    assert watch.statistics().last_error == "", "that is how watches end"


async def test_watch_that_ended_goes_on_from_the_last_bookmark(
    server: ScriptedApiServer, watch: ApiWatch
) -> None:
    await until(lambda: server.watches, what="it is watched")
    server.tell("BOOKMARK", {"metadata": {"resourceVersion": "77"}})
    server.events.put_nowait(None)
    await until(lambda: len(server.watches) == 2, what="it is watched again")
    assert server.watches[1]["resourceVersion"] == "77"
    assert len(server.lists) == 1


@pytest.mark.parametrize("event", [b"not json\n", b"[1]\n", b'{"type": "ERROR", "object": null}\n'])
async def test_nonsense_loses_nothing_and_ends_nothing(
    server: ScriptedApiServer, watch: ApiWatch, event: bytes
) -> None:
    server.store("kept")
    await until(lambda: server.watches, what="it is watched")
    server.events.put_nowait(event)
    await until(lambda: len(server.watches) == 2, what="it is watched again")
    assert entries(watch) == {"chat.json": b"kept"}


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_refusal_is_told_and_tried_again_with_the_token_of_then(
    server: ScriptedApiServer, watch: ApiWatch, tmp_path: Path, status: int
) -> None:
    server.answer_status = status
    await until(lambda: watch.statistics().last_error, what="it is refused")
    assert f"HTTP {status}" in watch.statistics().last_error
    (tmp_path / "token").write_text("two\n")
    server.answer_status = 200
    server.store("{}")
    await until(lambda: entries(watch), what="it is listed")
    assert server.tokens[0] == "Bearer one"
    assert server.tokens[-1] == "Bearer two"


async def test_event_without_end_is_not_kept(server: ScriptedApiServer, watch: ApiWatch) -> None:
    await until(lambda: server.watches, what="it is watched")
    server.events.put_nowait(b"x" * 2_100_000)
    await until(lambda: "more than" in watch.statistics().last_error, what="it is refused")


async def test_server_that_says_nothing_is_left(server: ScriptedApiServer) -> None:
    settings = ApiSettings(
        namespace="llm", name="x", url=server.url, silence_s=0.05, first_backoff_s=0.01
    )
    watch = ApiWatch(settings)
    task = asyncio.create_task(watch.run())
    await until(lambda: len(server.watches) >= 3, what="it begins anew")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_pauses_grow_to_their_bound_and_are_spread() -> None:
    for failures in range(50):
        longest_s = min(30.0, 2.0**failures)
        pauses = [backoff_s(failures) for _ in range(50)]
        assert all(0.0 <= each <= longest_s for each in pauses)
        assert max(pauses) > 2 * min(pauses)
