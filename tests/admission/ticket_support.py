"""What do tests of the ticket desk ask and look at?"""

from dataclasses import replace
from pathlib import Path

from giveway_admission.serving import Server
from giveway_admission.settings import ProxySettings
from giveway_admission.ticket_desk import TicketDesk
from giveway_admission.ticket_index import TicketStatistics
from giveway_admission.ticket_offering import TicketOffering

from tests.admission.data_plane import CHAT, LOCAL
from tests.support.raw_client import Answer, ask, chat_body
from tests.support.waiting import until

NOW = {"Prefer": "respond-async"}


def with_tickets(folder: Path, **changes: object) -> ProxySettings:
    """Settings of a proxy that gives tickets."""
    return replace(LOCAL, tickets=folder / "tickets", **changes)  # type: ignore[arg-type]


async def take(url: str, body: object | None = None, **headers: str) -> Answer:
    """Send a chat request that prefers a ticket."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await ask(url, CHAT, chat_body() if body is None else body, headers={**NOW, **named})


async def ticket(url: str, body: object | None = None, **headers: str) -> str:
    """The path of a new ticket."""
    return location(await take(url, body, **headers))


def location(answer: Answer) -> str:
    assert answer.status == 202, answer
    found = answer.header("location")
    assert found is not None
    return found


async def status(url: str, path: str) -> str:
    """What an open ticket says of itself."""
    answer = await ask(url, path)
    assert answer.status == 202, answer
    return str(answer.json()["status"])


async def final(url: str, path: str, **headers: str) -> Answer:
    """The answer of a ticket, once it is there."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    found: list[Answer] = []

    async def is_final() -> bool:
        found.append(await ask(url, path, headers=named))
        return found[-1].status != 202

    await until(is_final, what="the ticket has its answer")
    return found[-1]


def content(folder: Path) -> bytes:
    """All that is on the disk below a folder."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def desk(server: Server) -> TicketDesk:
    tickets = server.proxy.tickets
    assert tickets is not None
    return tickets


def work(server: Server) -> TicketOffering:
    return desk(server)._work


def tickets_of(server: Server) -> TicketStatistics:
    return desk(server).statistics()
