"""Who gets a ticket, and what becomes of it (H4, Y13)?"""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from giveway_admission.serving import Server
from giveway_admission.settings import ProxySettings

from tests.admission.data_plane import CHAT, LOCAL, is_empty, queued, running
from tests.support.policies import policy, service_class, tenant
from tests.support.raw_client import Answer, RawClient, ask, chat_body, request
from tests.support.scripted_engine import Exchange, ScriptedEngine, chatting, probes_first
from tests.support.vllm_answers import chat_answer, json_response
from tests.support.waiting import until

NOW = {"Prefer": "respond-async"}


def with_tickets(folder: Path, **changes: object) -> ProxySettings:
    return replace(LOCAL, tickets=folder / "tickets", **changes)  # type: ignore[arg-type]


async def final(server: Server, location: str, **headers: str) -> Answer:
    """The answer of a ticket, once it is there."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    found: list[Answer] = []

    async def is_final() -> bool:
        answer = await ask(server.data_url, location, headers=named)
        found.append(answer)
        return answer.status != 202

    await until(is_final, what="the ticket has its answer")
    return found[-1]


def location_of(answer: Answer) -> str:
    location = answer.header("location")
    assert location is not None
    return location


async def test_ticket_brings_the_engines_answer_byte_for_byte(tmp_path: Path) -> None:
    """H4: 202 with a ticket at once; later the engine's status, type and body as they were."""
    gate = asyncio.Event()
    async with (
        ScriptedEngine(chatting(gate=gate)) as engine,
        running(engine.url, tmp_path, settings=with_tickets(tmp_path)) as server,
    ):
        answer = await ask(server.data_url, CHAT, chat_body(), headers=NOW)
        assert answer.status == 202
        assert answer.header("preference-applied") == "respond-async"
        assert int(answer.header("retry-after") or 0) >= 1
        told = answer.json()
        assert re.fullmatch(r"/v1/tickets/[A-Za-z0-9_-]{32}", location_of(answer))
        assert location_of(answer).endswith(str(told["id"]))
        assert told["object"] == "ticket"
        await until(lambda: engine.busy == 1, what="it is at the engine")
        open_one = await ask(server.data_url, location_of(answer))
        assert (open_one.status, open_one.json()["status"]) == (202, "running")
        gate.set()
        done = await final(server, location_of(answer))
        plain = await ask(server.data_url, CHAT, chat_body())
        assert (done.status, done.body) == (200, plain.body)
        assert done.header("content-type") == plain.header("content-type")
        assert done.header("x-giveway-class") == plain.header("x-giveway-class")
        await is_empty(server)
