"""Does every edit of a policy end in a state that its author would call right?"""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.lines import CHAT, Line, arrivals, identity, named
from tests.support.policies import THREE_CLASSES, policy, service_class, tenant, write_policy
from tests.support.processes import Proxy
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import ask, chat_body
from tests.support.scraping import scrape
from tests.support.scripted_engine import ScriptedEngine, chatting
from tests.support.waiting import until

RELOADED_WITHIN_S = 10.0
"""Two seconds are promised; the rest is for a loaded machine."""


async def _seats(proxy: Proxy) -> float:
    return (await scrape(proxy.admin_url)).value("giveway_seats")


async def _until_seats(proxy: Proxy, count: int) -> None:
    async def there() -> bool:
        return await _seats(proxy) == count

    await until(there, what=f"{count} seats are in force", within_s=RELOADED_WITHIN_S)


async def _rejected(proxy: Proxy) -> float:
    return (await scrape(proxy.admin_url)).total("giveway_policy_rejected_total")


BREAKS: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"\x00\x01{[: garbage"),
    "empty": lambda path: path.write_text(""),
    "large": lambda path: path.write_text("a: " + "x" * 5_000_000),
    "encoding": lambda path: path.write_bytes("apiVersion: é".encode("utf-16")),
    "removed": Path.unlink,
    "folder-removed": lambda path: shutil.rmtree(path.parent),
}


@pytest.mark.slow
async def test_d07_whatever_becomes_of_the_file_the_last_good_policy_stays(
    start_proxy: ProxyStarter,
) -> None:
    """Six ways to break it: each is counted, logged, served through, and recovered from."""
    folder = start_proxy.folder / "policies"
    folder.mkdir()
    path = write_policy(folder, policy(seats=7))
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url, policy_path=folder)
        proxy.expected_errors = ("policy",)
        for turn, (name, break_it) in enumerate(BREAKS.items()):
            proxy.new_log_lines()
            before = await _rejected(proxy)
            break_it(path)

            async def counted(before: float = before) -> bool:
                return await _rejected(proxy) > before

            await until(counted, what=f"{name} is counted", within_s=RELOADED_WITHIN_S)
            assert proxy.exit_code is None
            assert await _seats(proxy) == 7 + turn
            assert (await ask(proxy.url, CHAT, chat_body())).status == 200
            assert any("policy" in line for line in proxy.new_log_lines()), name
            folder.mkdir(exist_ok=True)
            write_policy(folder, policy(seats=8 + turn))
            await _until_seats(proxy, 8 + turn)
            ready = await ask(proxy.admin_url, "/readyz")
            assert ready.status == 200, "it has recovered"


GOOD = yaml.safe_dump(policy(seats=9), sort_keys=False)
MISTAKES = {
    "typo": (GOOD.replace("timeToLiveSeconds", "timeToLive", 1), "timeToLive"),
    "indentation": (GOOD.replace("\n    weight: 70", "\n     weight: 70", 1), "not YAML"),
    "class-twice": (GOOD.replace("name: standard", "name: realtime", 1), "classes"),
    "key-twice": (GOOD.replace("    weight: 70\n", "    weight: 70\n    weight: 5\n", 1), "weight"),
}


@pytest.mark.slow
async def test_d09_unknown_and_doubled_keys_are_refused_by_name(start_proxy: ProxyStarter) -> None:
    """The log says where; the old policy stays; the mended file takes effect."""
    async with ScriptedEngine(chatting()) as engine:
        path = write_policy(start_proxy.folder, policy(seats=7), name="changing.yaml")
        proxy = await start_proxy(engine.url, policy_path=path)
        proxy.expected_errors = ("policy",)
        for turn, (name, (text, word)) in enumerate(MISTAKES.items()):
            assert text != GOOD, name
            proxy.new_log_lines()
            path.write_text(text)
            lines: list[str] = []

            def logged(lines: list[str] = lines, word: str = word) -> bool:
                lines.extend(proxy.new_log_lines())
                return any(word in line and "policy" in line for line in lines)

            await until(logged, what=f"{name} is named", within_s=RELOADED_WITHIN_S)
            assert await _seats(proxy) == 7 + turn
            write_policy(path.parent, policy(seats=8 + turn), name=path.name)
            await _until_seats(proxy, 8 + turn)


async def test_d11_a_class_that_goes_and_comes_back_starts_fresh(
    start_proxy: ProxyStarter,
) -> None:
    """Five run and ten wait while their class is removed: all are answered; then limits are new."""
    limits = {"requestsPerMinute": 1, "requestBurst": 15}
    high = service_class("realtime", time_to_live_s=60)
    low = service_class("standard", time_to_live_s=60, limits=limits)
    fresh = service_class("standard", limits={"requestsPerMinute": 1, "requestBurst": 3})
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        path = write_policy(start_proxy.folder, policy(classes=[high, low], seats=5), name="p.yaml")
        proxy = await start_proxy(engine.url, policy_path=path)
        line = Line(proxy)
        tasks = [
            asyncio.create_task(
                ask(proxy.url, CHAT, chat_body(stream=True), headers=identity("a", "standard"))
            )
            for _ in range(5)
        ]
        await until(lambda: engine.busy == 5, what="five run")
        await line.add_all(["waits"] * 10, tenant="a", class_name="standard")
        write_policy(path.parent, policy(classes=[high], seats=6), name=path.name)
        await _until_seats(proxy, 6)
        gate.set()
        ran = await asyncio.gather(*tasks)
        assert [(each.status, each.body.endswith(b"[DONE]\n\n")) for each in ran] == [
            (200, True)
        ] * 5
        waited = await line.answers()
        assert {each.status for each in waited} <= {200, 429}
        assert arrivals(engine).count("waits") == sum(each.status == 200 for each in waited)
        write_policy(path.parent, policy(classes=[high, fresh], seats=7), name=path.name)
        await _until_seats(proxy, 7)
        headers = identity("a", "standard")
        again = [await ask(proxy.url, CHAT, named("again"), headers=headers) for _ in range(5)]
        assert [each.status for each in again] == [200] * 3 + [429] * 2
        assert {each.header("x-giveway-class") for each in again} == {"standard"}


async def test_d12_a_bad_document_holds_up_no_good_one(start_proxy: ProxyStarter) -> None:
    """Bad policy, a good tenant beside it, then a good policy: the newest of both is in force."""
    folder = start_proxy.folder / "policies"
    folder.mkdir()
    acme = tenant("acme", maximum_class="batch", header=("X-Org", "acme"))
    write_policy(folder, policy(seats=7), name="policy.yaml")
    write_policy(folder, acme, name="tenant.yaml")
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url, policy_path=folder)
        proxy.expected_errors = ("policy",)

        async def class_of_acme() -> str | None:
            headers = {"X-Org": "acme", **identity(class_name="realtime")}
            return (await ask(proxy.url, CHAT, chat_body(), headers=headers)).header(
                "x-giveway-class"
            )

        assert await class_of_acme() == "batch"
        (folder / "policy.yaml").write_text("kind: [")

        async def counted() -> bool:
            return await _rejected(proxy) > 0

        await until(counted, what="the bad one is counted", within_s=RELOADED_WITHIN_S)
        better = tenant("acme", maximum_class="standard", header=("X-Org", "acme"))
        write_policy(folder, better, name="tenant.yaml")

        async def acme_is_standard() -> bool:
            return await class_of_acme() == "standard"

        await until(acme_is_standard, what="the good tenant holds", within_s=RELOADED_WITHIN_S)
        assert await _seats(proxy) == 7
        write_policy(folder, policy(classes=THREE_CLASSES, seats=9), name="policy.yaml")
        await _until_seats(proxy, 9)
        assert await class_of_acme() == "standard"
