"""How do tickets outlive the process?

One SQLite file in write-ahead mode, which only its owner can read. All I/O is done by one thread,
so that neither the event loop nor another thread ever waits for the disk; statements run in the
order in which they were given.

What always holds
- What `add` or `finish` has returned from is on the disk, also after a power cut.
- A statement ends within a time limit, and no more than a number of them wait.
- A deleted body is overwritten.
- One process at a time has the file.
"""

import asyncio
import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from giveway_admission.tickets import TicketAnswer, TicketRequest, TicketStatus

FILE_NAME: Final = "tickets.sqlite"
_VERSION = 1
_STATEMENT_S = 10.0
_MOST_WAITING = 4096
_OPCODES_BETWEEN_LOOKS = 20_000
_MOST_TICKETS = 1_000_000
"""Bound of what is read at the start; far above any bound of the index."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS tickets (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    created_s REAL NOT NULL,
    expires_s REAL NOT NULL,
    key_digest BLOB UNIQUE,
    fingerprint BLOB NOT NULL,
    path TEXT NOT NULL,
    fields TEXT NOT NULL,
    body BLOB,
    attempts INTEGER NOT NULL DEFAULT 0,
    status TEXT,
    finished_s REAL,
    answer_status INTEGER,
    answer_reason BLOB,
    answer_lines BLOB,
    answer_body BLOB
) WITHOUT ROWID
"""

T = TypeVar("T")


class TicketStoreError(Exception):
    """The store can't be used, at all or just now; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTicket:
    """One row, without body and answer."""

    id: str
    tenant: str
    created_s: float
    expires_s: float
    key_digest: bytes | None
    fingerprint: bytes
    size_bytes: int
    attempts: int
    status: TicketStatus | None
    """None: it is open."""
    finished_s: float | None


class TicketStore:
    """The file. `open` first."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tickets")
        self._waiting = 0
        self._connection: sqlite3.Connection | None = None
        self._deadline_s = 0.0

    async def open(self) -> list[StoredTicket]:
        """All tickets, finished ones in the order of their ends, then open ones by age.

        Raises `TicketStoreError`.
        """
        try:
            return await self._do(self._open)
        except TicketStoreError:
            self._executor.shutdown(wait=False)
            raise

    async def close(self) -> None:
        """After what was given before is done, or did not get done in its time."""
        with contextlib.suppress(TicketStoreError):
            await self._do(self._close)
        self._executor.shutdown(wait=False, cancel_futures=True)

    # Statements.

    async def add(self, ticket: StoredTicket, request: TicketRequest) -> None:
        fields = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in request.fields.items()
        }
        await self._run(
            "INSERT INTO tickets (id, tenant, created_s, expires_s, key_digest, fingerprint, path,"
            " fields, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(ticket.id, ticket.tenant, ticket.created_s, ticket.expires_s, ticket.key_digest),
                *(ticket.fingerprint, request.path, json.dumps(fields), request.body),
            ),
        )

    async def count_attempt(self, identity: str, attempts: int) -> None:
        await self._run("UPDATE tickets SET attempts = ? WHERE id = ?", (attempts, identity))

    async def finish(
        self, identity: str, status: TicketStatus, *, answer: TicketAnswer, finished_s: float
    ) -> None:
        await self._run(
            "UPDATE tickets SET status = ?, finished_s = ?, answer_status = ?, answer_reason = ?,"
            " answer_lines = ?, answer_body = ?, body = NULL WHERE id = ?",
            (
                *(status.value, finished_s, answer.status, answer.reason, answer.lines),
                *(answer.body, identity),
            ),
        )

    async def delete(self, identities: list[str]) -> None:
        def work() -> None:
            connection = self._begin()
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany(
                    "DELETE FROM tickets WHERE id = ?", [(each,) for each in identities]
                )
            except sqlite3.Error:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

        await self._do(work)

    async def request(self, identity: str) -> TicketRequest | None:
        """None: there is no such open ticket."""

        def work() -> TicketRequest | None:
            row: tuple[str, str, bytes | None] | None = self._first(
                "SELECT path, fields, body FROM tickets WHERE id = ?", identity
            )
            if row is None or row[2] is None:
                return None
            fields: dict[str, str] = json.loads(row[1])
            return TicketRequest(
                path=row[0],
                fields={
                    name.encode("latin-1"): value.encode("latin-1")
                    for name, value in fields.items()
                },
                body=row[2],
            )

        return await self._do(work)

    async def answer(self, identity: str) -> TicketAnswer | None:
        """None: there is no such finished ticket."""

        def work() -> TicketAnswer | None:
            row: tuple[int | None, bytes, bytes, bytes] | None = self._first(
                "SELECT answer_status, answer_reason, answer_lines, answer_body"
                " FROM tickets WHERE id = ?",
                identity,
            )
            if row is None or row[0] is None:
                return None
            return TicketAnswer(status=row[0], reason=row[1], lines=row[2], body=row[3])

        return await self._do(work)

    # In the thread.

    def _open(self) -> list[StoredTicket]:
        path = self.path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            path.chmod(0o600)
        except OSError as error:
            raise TicketStoreError(
                f"{path}: {error.strerror}. Give a folder that this user may write to."
            ) from error
        connection = sqlite3.connect(path, timeout=0.5, isolation_level=None)
        self._connection = connection
        connection.set_progress_handler(self._is_too_late, _OPCODES_BETWEEN_LOOKS)
        self._deadline_s = time.monotonic() + _STATEMENT_S
        try:
            return self._prepare(connection)
        except BaseException:
            self._close()
            raise

    def _prepare(self, connection: sqlite3.Connection) -> list[StoredTicket]:
        # Exclusive: a second process is refused, and the system frees the lock of one that died.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA journal_size_limit = 16777216")
        connection.execute("BEGIN IMMEDIATE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _VERSION):
            raise TicketStoreError(
                f"{self.path} was written by another version of giveway (format {version}). "
                "Use that version, or give another folder."
            )
        connection.execute(_SCHEMA)
        connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.execute("COMMIT")
        faults = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if faults != "ok":
            raise sqlite3.DatabaseError(str(faults))
        connection.row_factory = sqlite3.Row
        rows = connection.execute(
            "SELECT id, tenant, created_s, expires_s, key_digest, fingerprint,"
            " coalesce(length(body), 0) + coalesce(length(answer_body), 0)"
            " AS size_bytes, attempts, status, finished_s FROM tickets"
            " ORDER BY finished_s IS NULL, finished_s, created_s LIMIT ?",
            (_MOST_TICKETS,),
        ).fetchall()
        connection.row_factory = None
        return [
            StoredTicket(
                **{
                    **dict(row),
                    "status": None if row["status"] is None else TicketStatus(row["status"]),
                }
            )
            for row in rows
        ]

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _begin(self) -> sqlite3.Connection:
        if self._connection is None:
            raise TicketStoreError("The ticket store is closed.")
        self._deadline_s = time.monotonic() + _STATEMENT_S
        return self._connection

    def _first(self, statement: str, identity: str) -> Any:
        return self._begin().execute(statement, (identity,)).fetchone()

    def _is_too_late(self) -> int:
        return time.monotonic() > self._deadline_s

    # From the event loop to the thread.

    async def _run(self, statement: str, values: tuple[object, ...]) -> None:
        await self._do(lambda: self._begin().execute(statement, values).close())

    async def _do(self, work: Callable[[], T]) -> T:
        if self._waiting >= _MOST_WAITING:
            raise TicketStoreError(f"{self.path}: the disk does not keep up.")
        self._waiting += 1
        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, work)
            async with asyncio.timeout(2 * _STATEMENT_S):
                return await future
        except TimeoutError:
            raise TicketStoreError(f"{self.path}: the disk does not answer.") from None
        except sqlite3.Error as error:
            raise TicketStoreError(self._explain(error)) from error
        except RuntimeError as error:  # the executor takes nothing more
            raise TicketStoreError(f"{self.path}: closed.") from error
        finally:
            self._waiting -= 1

    def _explain(self, error: sqlite3.Error) -> str:
        text = str(error)
        if "locked" in text:
            return f"{self.path} is in use by another process. Give each proxy its own folder."
        if "full" in text:
            return f"{self.path}: the disk is full. Make room, or give another folder."
        if "readonly" in text or "unable to open" in text:
            return f"{self.path}: {text}. Give a folder that this user may write to."
        if type(error) is sqlite3.DatabaseError:
            return (
                f"{self.path} is damaged, or no ticket store ({text}). Move it away to begin with "
                "an empty one: its tickets are lost then."
            )
        return f"{self.path}: {text}."
