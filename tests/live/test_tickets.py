"""Do tickets outlive the proxy's process, however it ends (H4, Y13)?"""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.admission.ticket_support import content, final, location, take, ticket
from tests.support.policies import Spec, policy, tenant, write_policy
from tests.support.processes import Emulator, Proxy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import ask, chat_body
from tests.support.scraping import is_idle, outcomes, queue_has, scrape
from tests.support.scripted_engine import ScriptedEngine, chatting, silent
from tests.support.waiting import until

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
EMULATOR = ("--max-num-seqs", "4", "--model", "scripted")


def job(number: int, *, tokens: int = 20) -> dict[str, object]:
    return chat_body(text=f"job {number}", max_tokens=tokens, ignore_eos=True)


async def _running(proxy: Proxy, count: int) -> bool:
    return (await scrape(proxy.admin_url)).total("giveway_running_requests") == count


async def test_killed_proxy_loses_no_ticket(start_proxy: ProxyStarter, tmp_path: Path) -> None:
    """kill -9 with two running, eight queued and one done: all have an answer after a restart."""
    folder = ("--tickets", str(tmp_path / "tickets"))
    documents: list[Spec] = [
        policy(seats=2),
        tenant("acme", maximum_class="batch", keys=["sk-acme-1234"], folder=tmp_path),
    ]
    mine = {"Authorization": "Bearer sk-acme-1234"}
    async with Emulator(*EMULATOR, logs=tmp_path) as engine:
        proxy = await start_proxy(engine.url, *folder, documents=documents)
        done_one = await ticket(proxy.url, job(0, tokens=2), **mine)
        done = await final(proxy.url, done_one, **mine)
        assert done.status == 200
        long = [await ticket(proxy.url, job(n, tokens=400), **mine) for n in (1, 2)]
        await until(lambda: _running(proxy, 2), what="two run")
        queued = [
            await ticket(proxy.url, job(n), **mine, Idempotency_Key=f"job-{n}")
            for n in range(3, 11)
        ]
        await until(lambda: queue_has(proxy.admin_url, 8), what="eight wait")
        await proxy.kill()
        assert b"sk-acme" not in content(tmp_path / "tickets")

        again = await start_proxy(engine.url, *folder, documents=documents)
        repeated = await asyncio.gather(
            *(take(again.url, job(n), **mine, Idempotency_Key=f"job-{n}") for n in range(3, 11))
        )
        for answer, path in zip(repeated, queued, strict=True):
            assert answer.status == 200 or location(answer) == path
        assert (await ask(again.url, queued[0])).status == 404  # nobody else's business
        answers = [await final(again.url, path, **mine) for path in (*queued, *long)]
        assert {answer.status for answer in answers} == {200}
        assert {answer.header("x-giveway-tenant") for answer in answers} == {"acme"}
        assert {answer.header("x-giveway-class") for answer in answers} == {"batch"}
        kept = await ask(again.url, done_one, headers=mine)
        assert (kept.status, kept.body) == (200, done.body)
        await until(lambda: is_idle(again.admin_url), what="no seat leaks")
        assert await outcomes(again.admin_url) == {"completed": 10}


async def test_a_request_that_kills_proxies_is_sent_no_more_than_allowed(
    start_proxy: ProxyStarter, tmp_path: Path
) -> None:
    """Killed three times while it was at the engine: three sends, then it is failed; others run."""
    folder = ("--tickets", str(tmp_path / "tickets"), "--ticket-attempts", "3")
    async with ScriptedEngine(silent()) as engine:
        path = ""
        for attempt in (1, 2, 3):
            proxy = await start_proxy(engine.url, *folder)
            path = path or await ticket(proxy.url)
            await until(lambda n=attempt: len(engine.work) == n, what="it is sent")  # type: ignore[misc]
            await proxy.kill()
        engine.script = chatting()
        proxy = await start_proxy(engine.url, *folder)
        failed = await final(proxy.url, path)
        assert (failed.status, failed.error["code"]) == (502, "engine_failed")
        assert (await ask(proxy.url, CHAT, chat_body())).status == 200
        assert len(engine.work) == 4


async def test_finished_tickets_are_never_run_again(
    start_proxy: ProxyStarter, tmp_path: Path
) -> None:
    """Killed right after answers were there, again and again: one send for each ticket."""
    folder = ("--tickets", str(tmp_path / "tickets"))
    async with ScriptedEngine(chatting()) as engine:
        paths: list[str] = []
        for _ in range(3):
            proxy = await start_proxy(engine.url, *folder)
            paths += [await ticket(proxy.url) for _ in range(5)]
            for path in paths:
                assert (await final(proxy.url, path)).status == 200
            sent = len(engine.work)
            await until(lambda url=proxy.admin_url: is_idle(url), what="all is done")  # type: ignore[misc]
            await proxy.kill()
            assert sent == len(paths)
        assert len(engine.work) == 15


async def test_sigterm_ends_what_runs_and_leaves_what_waits(
    start_proxy: ProxyStarter, tmp_path: Path
) -> None:
    """Exit 0 while tickets are queued; the next process goes on with them."""
    gate = asyncio.Event()
    folder = ("--tickets", str(tmp_path / "tickets"))
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(engine.url, *folder, documents=[policy(seats=1)])
        paths = [await ticket(proxy.url) for _ in range(4)]
        await until(lambda: queue_has(proxy.admin_url, 3), what="three wait")
        proxy.signal(signal.SIGTERM)
        await until(lambda: "draining" in proxy.stderr, what="it drains")
        assert proxy.exit_code is None
        gate.set()
        assert await proxy.exited() == 0
        assert len(engine.work) == 1
        again = await start_proxy(engine.url, *folder, documents=[policy(seats=1)])
        assert [(await final(again.url, path)).status for path in paths] == [200] * 4
        assert len(engine.work) == 4


async def test_a_damaged_store_ends_the_start_with_what_to_do(tmp_path: Path) -> None:
    """Exit 1, one line that names the file and the way out."""
    (tmp_path / "tickets.sqlite").write_bytes(b"garbage " * 1000)
    path = write_policy(tmp_path, policy())
    proxy = Proxy(
        "http://127.0.0.1:9", "--tickets", str(tmp_path), logs=tmp_path, policy=path, name="broken"
    )
    proxy.spawn()
    assert await proxy.exited() == 1
    assert "tickets.sqlite is damaged" in proxy.stderr
    assert "Move it away" in proxy.stderr
    assert "Traceback" not in proxy.stderr
