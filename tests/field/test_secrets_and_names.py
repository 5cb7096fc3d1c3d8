"""What do logs, metrics and answers tell of keys, names and ids that clients sent?"""

import base64
import json
from collections.abc import Iterator

import pytest

from tests.support.lines import CHAT
from tests.support.metering import limited
from tests.support.policies import policy, service_class, tenant
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import Answer, RawClient, ask, chat_body, request
from tests.support.scraping import outcomes, scrape
from tests.support.scripted_engine import (
    Exchange,
    ScriptedEngine,
    answering,
    chatting,
    probes_first,
)
from tests.support.vllm_answers import chat_answer, error_answer
from tests.support.waiting import until

CANARY = "zqCANARY7451"
PROMPT = "zqPROMPT8890"


@pytest.mark.parametrize("log_format", ["json", "text"])
async def test_g03_no_key_and_no_prompt_is_told_anywhere(
    start_proxy: ProxyStarter, log_format: str
) -> None:
    """A canary in every place for keys, at the lowest log level, through good and bad ends.

    It is in no log, metric, status or answer, but in the engine's ears if it was meant for it.
    """
    acme = tenant(
        "acme", maximum_class="realtime", keys=[f"sk-{CANARY}"], folder=start_proxy.folder
    )
    basic = base64.b64encode(f"user:{CANARY}".encode()).decode()
    places: list[tuple[str, dict[str, str]]] = [
        (CHAT, {"Authorization": f"Bearer sk-{CANARY}"}),
        (CHAT, {"Authorization": f"Bearer wrong-{CANARY}"}),
        (CHAT, {"Authorization": f"Basic {basic}"}),
        (CHAT, {"X-Api-Key": f"sk-{CANARY}"}),
        (CHAT, {"Api-Key": CANARY, "Cookie": f"session={CANARY}"}),
        (f"{CHAT}?key={CANARY}&api_key={CANARY}", {}),
        (f"/v1/secret?token={CANARY}", {"Proxy-Authorization": f"Basic {basic}"}),
        (CHAT, {"X-Giveway-Tenant": f"sk-live-{CANARY}", "X-Giveway-Class": "realtime"}),
        (CHAT, {"X-Giveway-Drain-Token": CANARY, "X-Giveway-Workflow": CANARY}),
    ]

    async def resetting(exchange: Exchange) -> None:
        exchange.reset()

    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(
            engine.url,
            *("--log-level", "debug", "--access-log", "--log-format", log_format),
            documents=[policy(), acme],
        )
        if log_format == "text":
            proxy.expected_errors = ("",)  # text is no JSON, which the check takes for errors
        answers: list[Answer] = []
        refusing = answering(error_answer(400, "Bad", "no"))
        for script in (chatting(), refusing, probes_first(resetting)):
            engine.script = script
            for path, headers in places:
                body = chat_body(text=PROMPT)
                answers.append(await ask(proxy.url, path, body, headers=headers))
                broken = json.dumps(body).encode()[:-3]
                answers.append(await ask(proxy.url, path, broken, headers=headers))
        bad = f"GET http://user:{CANARY}@host/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        async with await RawClient.open(proxy.url) as client:
            await client.send(bad)
            raw = await client.read_until_close()
        engine.script = chatting()
        assert any(
            each.header("x-giveway-tenant") == "acme" for each in answers if each.status == 200
        )
        # A trusted tenant's name is told to who sent it, and to nobody else.
        own = f"X-Giveway-Tenant: sk-live-{CANARY}".encode()
        told = [raw, *((each.head.raw + each.body).replace(own, b"") for each in answers)]
        told += [
            (await ask(proxy.admin_url, path)).body
            for path in ("/metrics", "/status", "/readyz", "/")
        ]
        told += [proxy.stderr.encode(), proxy.stdout.encode()]
        for text in told:
            assert CANARY.encode() not in text, text
            assert basic.encode() not in text, text
            assert PROMPT.encode() not in text, text
        assert " error " not in proxy.stderr


INSIDE = (
    *("/metrics", "/status", "/readyz", "/livez", "/drain", "/config", "/queue", "/debug"),
    *("/debug/pprof", "/policy", "/", "/healthz"),
)


async def test_g04_the_data_port_tells_nothing_of_the_inside(start_proxy: ProxyStarter) -> None:
    """404 in JSON for all that is of the admin port; what the client asked is not passed on."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url)
        for path in INSIDE:
            answer = await ask(proxy.url, path, headers={"X-Mark": "client"})
            assert (answer.status, answer.error["code"]) == (404, "not_found"), path
        assert [seen for seen in engine.requests if seen.header("x-mark")] == []


async def test_g04_labels_hold_no_address_and_no_key(start_proxy: ProxyStarter) -> None:
    """Tenants that look like e-mail addresses or keys are counted as `other`, and shown nowhere."""
    private = ["anna@example.com", "sk-live-0123456789abcdef", "eyJhbGciOiJIUzI1NiJ9.e30.x"]
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(engine.url)
        for name in private:
            headers = {"X-Giveway-Tenant": name}
            assert (await ask(proxy.url, CHAT, chat_body(), headers=headers)).status == 200
        page = (await ask(proxy.admin_url, "/metrics")).body + (
            await ask(proxy.admin_url, "/status")
        ).body
        assert [name for name in private if name.encode() in page] == []


ODD = {
    "long": b"x" * 6000,
    "percent": b"a%0d%0aX-Injected: 1",
    "quotes": b'a"b\\c',
    "emoji": "a\U0001f600b".encode(),
    "latin": b"a\xe9b",
    "tab": b"a\tb",
    "escape": b"a\x1b[31mb",
    "nul": b"a\x00b",
    "newline": b"a\nX-Injected: 1",
}


async def test_g10_odd_ids_and_names_are_cleaned_or_replaced(start_proxy: ProxyStarter) -> None:
    """In id, tenant and class: bounded, on one log line, no header is split, labels stay valid."""
    names = (b"X-Request-Id", b"X-Giveway-Tenant", b"X-Giveway-Class", b"X-Giveway-Workflow")
    async with ScriptedEngine(answering(chat_answer())) as engine:
        proxy = await start_proxy(engine.url, "--access-log")
        for name, header, value in _odd(names):
            data = request("POST", CHAT, body=chat_body()).replace(
                b"Host: proxy\r\n", b"Host: proxy\r\n" + header + b": " + value + b"\r\n", 1
            )
            async with await RawClient.open(proxy.url) as client:
                await client.send(data)
                answer = await client.answer()
            assert answer.status in (200, 400), (name, header)
            assert answer.header("x-injected") is None
            assert len(answer.head.raw) < 2000
            assert all(len(given) <= 256 for _, given in answer.head.headers)
            for seen in engine.work[-1:]:
                assert len(seen.header("x-request-id") or "") <= 160
        for line in proxy.stderr.splitlines():
            entry = json.loads(line)
            assert len(line) < 1500
            assert "\x1b" not in str(entry)
        await scrape(proxy.admin_url)


def _odd(names: tuple[bytes, ...]) -> Iterator[tuple[str, bytes, bytes]]:
    for name, value in ODD.items():
        for header in names:
            yield name, header, value


async def test_g12_addresses_that_clients_claim_buy_nothing(start_proxy: ProxyStarter) -> None:
    """Rotating X-Forwarded-For, X-Real-IP and Forwarded is one tenant with one bucket."""
    async with ScriptedEngine(answering(chat_answer())) as engine:
        documents = limited(requestsPerMinute=1, requestBurst=5)
        anonymous = tenant("anonymous", maximum_class="only", limits={"requestsPerMinute": 1})
        proxy = await start_proxy(engine.url, documents=[*documents, anonymous])
        async with await RawClient.open(proxy.url) as client:
            answers = [
                await client.post(
                    CHAT,
                    chat_body(),
                    headers={
                        "X-Forwarded-For": f"203.0.113.{index}, 2001:db8::{index:x}",
                        "X-Real-IP": f"203.0.113.{index}",
                        "Forwarded": f"for=203.0.113.{index}",
                    },
                )
                for index in range(40)
            ]
        assert sum(each.status == 200 for each in answers) <= 2
        assert {each.header("x-giveway-tenant") for each in answers} == {"anonymous"}


REFUSALS: dict[str, tuple[bytes, int, str]] = {
    "method": (request("GET", CHAT), 405, "invalid_request"),
    "path": (request("GET", "/nothing"), 404, "not_found"),
    "json": (request("POST", CHAT, body=b"{"), 400, "invalid_request"),
    "large": (request("POST", CHAT, body=b"x" * 3000), 413, "request_too_large"),
    "upgrade": (
        request("GET", "/v1/models", headers={"Connection": "upgrade", "Upgrade": "websocket"}),
        400,
        "invalid_request",
    ),
    "head": (request("GET", "/v1/models", headers={"X": "x" * 70_000}), 431, "invalid_request"),
    "no-http": (b"\x16\x03\x01 hello\r\n\r\n", 400, "invalid_request"),
    "key": (
        request("POST", CHAT, body=chat_body(), headers={"X-Api-Key": "nobody"}),
        401,
        "unauthorized",
    ),
}


async def test_g14_each_early_refusal_is_counted_logged_and_explained(
    start_proxy: ProxyStarter,
) -> None:
    """Wherever it is refused: JSON with a code, one count under class `none`, one line."""
    acme = tenant("acme", maximum_class="realtime", keys=["sk-acme-1"], folder=start_proxy.folder)
    document = policy(classes=[service_class("realtime")], identity={"unknownCredential": "Reject"})
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(
            engine.url, "--access-log", "--max-body", "2Ki", documents=[document, acme]
        )
        for name, (data, status, code) in REFUSALS.items():
            before = (await outcomes(proxy.admin_url)).get(code, 0)
            proxy.new_log_lines()
            async with await RawClient.open(proxy.url) as client:
                await client.send(data)
                answer = await client.answer()
            assert (answer.status, answer.error["code"]) == (status, code), name
            assert (await outcomes(proxy.admin_url))[code] == before + 1, name
            lines: list[str] = []

            def logged(lines: list[str] = lines, status: int = status, code: str = code) -> bool:
                lines += proxy.new_log_lines()
                entries = [json.loads(line) for line in lines]
                return [(each.get("status"), each.get("outcome")) for each in entries] == [
                    (status, code)
                ]

            await until(logged, what=f"{name} has its line")
        assert engine.work == []
