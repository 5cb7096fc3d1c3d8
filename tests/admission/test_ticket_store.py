"""What is on the disk after which call (Y13)?"""

import asyncio
import shutil
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from giveway_admission.ticket_store import (
    FILE_NAME,
    StoredTicket,
    TicketStore,
    TicketStoreError,
)
from giveway_admission.tickets import TicketAnswer, TicketRequest, TicketStatus

from tests.admission.ticket_support import content

REQUEST = TicketRequest(
    path="/v1/chat/completions", fields={b"x-request-id": b"r-1"}, body=b'{"a": "\xff\x00"}'
)
ANSWER = TicketAnswer(status=200, reason=b"OK", lines=b"A: b\r\n", body=b"answer \x00\xff")


def row(identity: str, *, created_s: float = 1.0, key: bytes | None = None) -> StoredTicket:
    return StoredTicket(
        id=identity,
        tenant="t",
        created_s=created_s,
        expires_s=9.0,
        key_digest=key,
        fingerprint=b"f",
        size_bytes=0,
        attempts=0,
        status=None,
        finished_s=None,
    )


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[TicketStore, list[StoredTicket]]]:
    store = TicketStore(folder)
    rows = await store.open()
    try:
        yield store, rows
    finally:
        await store.close()


async def test_what_was_added_is_there_after_reopening(tmp_path: Path) -> None:
    """Request and attempts come back as they were; a finished ticket has its answer alone."""
    async with opened(tmp_path) as (store, rows):
        assert rows == []
        await store.add(row("open", created_s=2.0, key=b"k"), REQUEST)
        await store.add(row("done"), REQUEST)
        await store.count_attempt("open", 2)
        await store.finish("done", TicketStatus.COMPLETED, answer=ANSWER, finished_s=5.0)
    async with opened(tmp_path) as (store, rows):
        assert [(each.id, each.status, each.attempts, each.finished_s) for each in rows] == [
            ("done", TicketStatus.COMPLETED, 0, 5.0),
            ("open", None, 2, None),
        ]
        assert (rows[0].size_bytes, rows[1].size_bytes) == (len(ANSWER.body), len(REQUEST.body))
        assert rows[1].key_digest == b"k"
        assert await store.request("open") == REQUEST
        assert await store.request("done") is None
        assert await store.answer("done") == ANSWER
        assert await store.answer("open") is None


async def test_what_was_added_survives_a_process_that_never_closes(tmp_path: Path) -> None:
    """Read by somebody else while the file is still open: it is in the file, not in memory."""
    async with opened(tmp_path / "live") as (store, _):
        await store.add(row("a"), REQUEST)
        copy = shutil.copytree(tmp_path / "live", tmp_path / "copy")
        async with opened(copy) as (_, rows):
            assert [each.id for each in rows] == ["a"]


async def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    """0600 for the file and its journal, also if it was there with other rights."""
    folder = tmp_path / "new" / "tickets"
    folder.mkdir(parents=True)
    (folder / FILE_NAME).touch(mode=0o644)
    async with opened(folder) as (store, _):
        await store.add(row("a"), REQUEST)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert set(modes.values()) == {0o600}
    assert len(modes) == 2
    async with opened(tmp_path / "made"):
        assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700


async def test_a_deleted_body_is_gone_from_the_disk(tmp_path: Path) -> None:
    """Overwritten, not only forgotten; and a finished ticket's body too."""
    secret = b"very private prompt"
    request = TicketRequest(path="/v1/x", fields={}, body=secret)
    async with opened(tmp_path) as (store, _):
        await store.add(row("a"), request)
        await store.add(row("b"), request)
        await store.finish("b", TicketStatus.FAILED, answer=ANSWER, finished_s=2.0)
        await store.delete(["a"])
        assert await store.request("a") is None
    assert secret not in content(tmp_path)


async def test_one_process_at_a_time(tmp_path: Path) -> None:
    """The second one is told so; when the first is gone it may have the folder."""
    async with opened(tmp_path):
        with pytest.raises(TicketStoreError, match="in use by another process"):
            await TicketStore(tmp_path).open()
    async with opened(tmp_path) as (_, rows):
        assert rows == []


async def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    """It is not replaced by an empty one: somebody's work may still be saved from it."""
    path = tmp_path / FILE_NAME
    path.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(TicketStoreError, match="Move it away"):
        await TicketStore(tmp_path).open()
    assert path.read_bytes().startswith(b"this is no database")


async def test_damage_in_the_middle_is_found_at_the_start(tmp_path: Path) -> None:
    """A page that was overwritten, behind a sound beginning."""
    async with opened(tmp_path) as (store, _):
        for number in range(50):
            await store.add(row(f"t{number}"), REQUEST)
    path = tmp_path / FILE_NAME
    data = bytearray(path.read_bytes())
    data[8192:12288] = b"\xa5" * 4096
    path.write_bytes(data)
    with pytest.raises(TicketStoreError, match="Move it away"):
        await TicketStore(tmp_path).open()


async def test_another_versions_file_is_left_alone(tmp_path: Path) -> None:
    """A newer format is not written into."""
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(TicketStoreError, match="another version"):
        await TicketStore(tmp_path).open()


async def test_a_folder_that_can_not_be_is_named(tmp_path: Path) -> None:
    """A file where the folder should be."""
    (tmp_path / "file").touch()
    with pytest.raises(TicketStoreError, match="folder that this user may write to"):
        await TicketStore(tmp_path / "file").open()


async def test_a_full_disk_is_an_error_and_ends(tmp_path: Path) -> None:
    """What does not fit is refused, what fits later is taken."""
    async with opened(tmp_path) as (store, _):
        assert store._connection is not None
        await store._do(lambda: store._begin().execute("PRAGMA max_page_count = 8").fetchone())
        large = TicketRequest(path="/v1/x", fields={}, body=b"x" * 100_000)
        with pytest.raises(TicketStoreError, match="disk is full"):
            await store.add(row("large"), large)
        await store.add(row("small"), REQUEST)
        assert await store.request("large") is None
        assert await store.request("small") == REQUEST


async def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    """And says so, instead of waiting."""
    async with opened(tmp_path) as (store, _):
        pass
    with pytest.raises(TicketStoreError):
        await store.add(row("a"), REQUEST)


async def test_the_event_loop_never_waits_for_the_disk(tmp_path: Path) -> None:
    """While a statement is held up in the thread, the loop goes on."""
    async with opened(tmp_path) as (store, _):
        loop = asyncio.get_running_loop()
        held, go_on = asyncio.Event(), asyncio.Event()

        def hold() -> None:
            loop.call_soon_threadsafe(held.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(timeout=10)

        holding = asyncio.create_task(store._do(hold))
        await held.wait()
        adding = asyncio.create_task(store.add(row("a"), REQUEST))
        await asyncio.sleep(0)
        assert not adding.done()
        go_on.set()
        await asyncio.gather(holding, adding)
        assert await store.request("a") == REQUEST
