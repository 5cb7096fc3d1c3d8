"""Can a client become somebody else, go higher than it may, or reach what steers the engine?

Every spelling that might make the proxy, or the engine behind it, read a request differently. What
is looked at is how the proxy saw the request (class, tenant) and what reached the engine.
"""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.lines import CHAT
from tests.support.policies import policy, tenant, write_policy
from tests.support.proxy_fixtures import ProxyStarter, Stand, standing
from tests.support.raw_client import Answer, RawClient, ask, chat_body
from tests.support.scraping import outcomes
from tests.support.scripted_engine import Exchange, ScriptedEngine, SeenRequest, answering
from tests.support.vllm_answers import chat_answer, embeddings_answer, json_response
from tests.support.waiting import until

EMBEDDINGS = "/v1/embeddings"
ACME, VIP = "sk-acme-7d1f", "sk-vip-93c2"
SENT = b'{"model":"m","messages":[],"input":"a"}'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secured_of_module(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    """Class is asked by a trusted header; acme may be standard, vip realtime, others batch."""
    folder = tmp_path_factory.mktemp("secured")
    documents = [
        policy(trusted_headers=("X-Giveway-Class",), identity={"fallbackClass": "batch"}),
        tenant("acme", maximum_class="standard", keys=[ACME], folder=folder),
        tenant("vip", maximum_class="realtime", keys=[VIP], folder=folder),
    ]
    async with standing(folder, documents) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def secured(secured_of_module: Stand) -> AsyncIterator[Stand]:
    """The module's proxy, checked after each test."""

    async def run(exchange: Exchange) -> None:
        is_chat = exchange.request.target.startswith(CHAT)
        await exchange.send(chat_answer() if is_chat else embeddings_answer())

    secured_of_module.engine.script = run
    yield secured_of_module
    await secured_of_module.aftermath.check()


async def _sent(stand: Stand, *lines: str, path: str = CHAT, body: bytes = SENT) -> Answer:
    """A request whose header lines are written as they are given."""
    head = [f"POST {path} HTTP/1.1", "Host: proxy", "Content-Type: application/json", *lines]
    if not any(line.lower().startswith("transfer-encoding") for line in lines):
        head.append(f"Content-Length: {len(body)}")
    async with await RawClient.open(stand.proxy.url) as client:
        await client.send("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)
        return await client.answer()


def _seen_as(answer: Answer) -> tuple[str | None, str | None]:
    return answer.header("x-giveway-tenant"), answer.header("x-giveway-class")


def _priorities(seen: SeenRequest) -> list[str]:
    """All priorities in the head that the engine got."""
    return [value for name, value in seen.headers if name == "x-vllm-priority"]


def _pairs(body: bytes) -> list[tuple[str, object]]:
    """The members of a JSON object as they stand, repeated ones too."""
    found: list[tuple[str, object]] = json.loads(body, object_pairs_hook=list)
    return found


BEARER = f"Authorization: Bearer {ACME}"
RAISING = {
    "asked": [BEARER, "X-Giveway-Class: realtime"],
    "case": [BEARER, "x-GIVEWAY-class: realtime"],
    "underscores": [BEARER, "X_Giveway_Class: realtime", "X_Giveway_Tenant: vip"],
    "twice": [BEARER, "X-Giveway-Class: standard", "X-Giveway-Class: realtime"],
    "twice-mixed-case": [BEARER, "X-Giveway-Class: realtime", "x-giveway-class: realtime"],
    "listed": [BEARER, "X-Giveway-Class: standard, realtime"],
    "white-space": [BEARER, "X-Giveway-Class: \t realtime \t"],
    "quoted": [BEARER, 'X-Giveway-Class: "realtime"'],
    "upper": [BEARER, "X-Giveway-Class: REALTIME"],
    "tenant": [BEARER, "X-Giveway-Tenant: vip", "X-Giveway-Class: realtime"],
    "source": [BEARER, "X-Giveway-Source: realtime"],
    "nominated": [BEARER, "Connection: x-giveway-class, x-vllm-priority, host, content-length"],
    "engine-priority": [BEARER, "X-Vllm-Priority: -1000"],
    "engine-priority-twice": [BEARER, "X-Vllm-Priority: 5", "x-vllm-priority: -1000"],
    "workflow": [BEARER, "X-Giveway-Workflow: vip", "X-Giveway-Waits-For: vip"],
    "forwarded": [BEARER, "X-Forwarded-User: vip", "X-Real-Ip: 127.0.0.1", "Forwarded: for=vip"],
    "two-schemes": [BEARER, "Proxy-Authorization: Bearer sk-vip", "Cookie: key=sk-vip"],
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", RAISING)
async def test_no_header_raises_a_client_above_its_ceiling(secured: Stand, name: str) -> None:
    """Acme stays acme and standard; the engine gets one priority, the same as without tricks."""
    await _sent(secured, BEARER)
    expected = _priorities(secured.engine.work[-1])
    assert len(expected) == 1
    answer = await _sent(secured, *RAISING[name])
    assert (answer.status, _seen_as(answer)) == (200, ("acme", "standard"))
    assert _priorities(secured.engine.work[-1]) == expected


LOWERED_BODIES = {
    "service-tier": b'{"messages":[],"service_tier":"priority"}',
    "service-tier-twice": b'{"service_tier":"flex","messages":[],"service_tier":"priority"}',
    "service-tier-escaped": b'{"messages":[],"service\\u005ftier":"priority"}',
    "class": b'{"messages":[],"class":"realtime","tenant":"vip","X-Giveway-Class":"realtime"}',
    "user": b'{"messages":[],"user":"vip","metadata":{"class":"realtime"}}',
    "priority": b'{"messages":[],"priority":-1000}',
    "priority-twice": b'{"priority":0,"messages":[],"priority":-1000}',
    "priority-escaped": b'{"messages":[],"\\u0070riority":-1000}',
    "priority-escaped-wholly": (
        b'{"messages":[],"\\u0070\\u0072\\u0069\\u006f\\u0072\\u0069\\u0074\\u0079":-1000}'
    ),
    "extra-body": b'{"messages":[],"extra_body":{"priority":-1000},"vllm_xargs":{"priority":-9}}',
    "priority-as-text": b'{"messages":[],"priority":"-1000"}',
    "priority-as-float": b'{"messages":[],"priority":-1e3}',
    "priority-among-spaces": b'\n{ "messages":[] ,\t"priority"\n:\r-1000 }\n',
    "priority-far-behind": b'{"messages":[],"x":"%b","priority":-1000}' % (b"a" * 1_500_000),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", LOWERED_BODIES)
async def test_no_field_of_a_body_raises_a_client(secured: Stand, name: str) -> None:
    """The head's priority overrides the body's: ours is there, once, whatever the body says."""
    await _sent(secured, BEARER)
    expected = _priorities(secured.engine.work[-1])
    answer = await _sent(secured, BEARER, body=LOWERED_BODIES[name])
    assert (answer.status, _seen_as(answer)) == (200, ("acme", "standard"))
    assert _priorities(secured.engine.work[-1]) == expected
    nobody = await _sent(secured, body=LOWERED_BODIES[name])
    assert _seen_as(nobody) == ("anonymous", "batch")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", [each for each in LOWERED_BODIES if "priority" in each])
async def test_where_the_body_decides_only_our_priority_is_in_it(secured: Stand, name: str) -> None:
    """Embeddings: of all spellings one member `priority` is left, with our number.

    In a body that is too long to be taken apart ours stands last, which is the one that counts.
    """
    body = LOWERED_BODIES[name].replace(b'"messages":[]', b'"input":"a"')
    await _sent(secured, BEARER, path=EMBEDDINGS, body=b'{"input":"a"}')
    expected = [value for key, value in _pairs(secured.engine.work[-1].body) if key == "priority"]
    assert len(expected) == 1
    answer = await _sent(secured, BEARER, path=EMBEDDINGS, body=body)
    assert answer.status == 200
    seen = _pairs(secured.engine.work[-1].body)
    found = [value for key, value in seen if key == "priority"]
    assert (found[-1:] if name == "priority-far-behind" else found) == expected
    kept = [pair for pair in _pairs(body) if pair[0] != "priority"]
    assert [pair for pair in seen if pair[0] != "priority"] == kept


@pytest.mark.asyncio(loop_scope="module")
async def test_neither_trailers_nor_the_query_raise_a_client(secured: Stand) -> None:
    """What comes behind a chunked body or the path steers nothing, here or at the engine."""
    body = b"%x\r\n%b\r\n0\r\nX-Giveway-Class: realtime\r\nX-Vllm-Priority: -9\r\n\r\n" % (
        len(SENT),
        SENT,
    )
    await _sent(secured, BEARER)
    expected = _priorities(secured.engine.work[-1])
    query = f"{CHAT}?priority=-9&service_tier=priority&x-giveway-class=realtime"
    for path, lines in ((CHAT, ["Transfer-Encoding: chunked"]), (query, [])):
        answer = await _sent(secured, BEARER, *lines, path=path, body=body if lines else SENT)
        assert (answer.status, _seen_as(answer)) == (200, ("acme", "standard"))
        assert _priorities(secured.engine.work[-1]) == expected


CREDENTIALS: dict[str, tuple[list[str], str]] = {
    "bearer": ([f"Authorization: Bearer {ACME}"], "acme"),
    "lower-case-scheme": ([f"Authorization: bearer {ACME}"], "acme"),
    "upper-case-scheme": ([f"AUTHORIZATION: BEARER {ACME}"], "acme"),
    "more-white-space": ([f"Authorization:   Bearer   {ACME}  \t"], "acme"),
    "api-key": ([f"X-Api-Key: {ACME}"], "acme"),
    "api-key-lower-case": ([f"x-api-key:{ACME}"], "acme"),
    "both": ([f"Authorization: Bearer {ACME}", "X-Api-Key: sk-nobody-1"], "acme"),
    "none": ([], "anonymous"),
    "unknown": (["Authorization: Bearer sk-nobody-1"], "anonymous"),
    "empty": (["Authorization: Bearer ", "X-Api-Key: "], "anonymous"),
    "no-scheme": ([f"Authorization: {VIP}"], "anonymous"),
    "basic": ([f"Authorization: Basic {VIP}"], "anonymous"),
    "token-scheme": ([f"Authorization: Token {VIP}"], "anonymous"),
    "shortened": ([f"Authorization: Bearer {VIP[:-1]}"], "anonymous"),
    "lengthened": ([f"Authorization: Bearer {VIP}0"], "anonymous"),
    "upper": ([f"Authorization: Bearer {VIP.upper()}"], "anonymous"),
    "quoted": ([f'Authorization: Bearer "{VIP}"'], "anonymous"),
    "escaped": ([f"Authorization: Bearer {VIP.replace('-', '%2d')}"], "anonymous"),
    "listed": ([f"Authorization: Bearer sk-nobody-1, Bearer {VIP}"], "anonymous"),
    "twice": (["X-Api-Key: sk-nobody-1", f"X-Api-Key: {VIP}"], "anonymous"),
    "underscores": ([f"X_Api_Key: {VIP}"], "anonymous"),
    "two-words": ([f"Authorization: Bearer {VIP} {VIP}"], "anonymous"),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", CREDENTIALS)
async def test_a_key_is_known_as_a_whole_or_not_at_all(secured: Stand, name: str) -> None:
    """Any writing of the scheme, no other writing of the key; the engine never gets it."""
    lines, expected = CREDENTIALS[name]
    answer = await _sent(secured, *lines, "X-Giveway-Class: realtime")
    classes = {"acme": "standard", "anonymous": "batch"}
    assert (answer.status, _seen_as(answer)) == (200, (expected, classes[expected]))
    head = secured.engine.work[-1].head
    assert b"\r\nauthorization:" not in head.lower()
    assert b"\r\nx-api-key:" not in head.lower()


async def test_a_revoked_key_is_unknown_and_a_new_one_known(start_proxy: ProxyStarter) -> None:
    """The key file changes: 401 for the old one, acme for the new one, no restart; none is told."""
    folder = start_proxy.folder
    document = policy(identity={"unknownCredential": "Reject", "fallbackClass": "batch"})
    old, new = "sk-acme-old-4411", "sk-acme-new-8822"

    def write(key: str) -> None:
        acme = tenant("acme", maximum_class="standard", keys=[key], folder=folder)
        write_policy(folder, document, acme, name="keys.yaml")

    write(old)
    async with ScriptedEngine(answering(chat_answer())) as engine:
        proxy = await start_proxy(
            engine.url, "--log-level=debug", "--access-log", policy_path=folder / "keys.yaml"
        )

        async def status_of(key: str) -> int:
            headers = {"Authorization": f"Bearer {key}"}
            return (await ask(proxy.url, CHAT, chat_body(), headers=headers)).status

        assert (await status_of(old), await status_of(new)) == (200, 401)
        write(new)

        async def known() -> bool:
            return await status_of(new) == 200

        await until(known, what="the new key is known", within_s=10)
        assert await status_of(old) == 401
        assert (await ask(proxy.url, CHAT, chat_body())).status == 200, "no key is no wrong key"
        assert (await outcomes(proxy.admin_url))["unauthorized"] >= 2
        told = [proxy.stderr, proxy.stdout]
        told += [
            (await ask(proxy.admin_url, path)).body.decode()
            for path in ("/", "/metrics", "/status", "/readyz")
        ]
        refused = await ask(proxy.url, CHAT, chat_body(), headers={"X-Api-Key": old})
        told.append((refused.head.raw + refused.body).decode())
        assert [key for key in (old, new) for text in told if key in text] == []


CONTROL = ("sleep", "wake_up", "reset_prefix_cache", "v1/load_lora_adapter", "metrics")
SPELLINGS = (
    *("/{}", "//{}", "/./{}", "/{}/", "/{}?x=1", "/{};x", "/{}%00", "/{}%20", "/{}%2f", "\\{}"),
    *("/v1/../{}", "/health/../{}", "/v1/chat/completions/../../../{}", "/v1/models/../../{}"),
    *("/v1/models/..%2f..%2f{}", "/v1/models/%2e%2e/%2e%2e/{}", "/v1/models/a/../../../{}"),
    *("/v1/models/.%2e/.%2E/{}", "/v1/models//{}/../../../{}", "/v1/responses/../../{}"),
    *("/v1/responses/..%2f..%2f{}", "/v1/responses/../../{}/cancel", "/v1/messages/..;/{}"),
    *("http://engine/{}", "HTTP://127.0.0.1:8000/{}", "//engine/{}", "/%2f{}", "/..%2f{}"),
    *("/v1/models%2f..%2f..%2f{}", "/v1/models\\..\\..\\{}", "/v1%2f..%2f{}", "/.{}", "/.//{}"),
)


def _spelled(path: str) -> list[str]:
    escaped = f"%{ord(path[0]):02x}{path[1:]}"
    forms = [form.replace("{}", path) for form in SPELLINGS]
    return [*forms, f"/{path.upper()}", f"/{path.title()}", f"/{escaped}", f"/v1/../{escaped}"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS", "DELETE"])
@pytest.mark.parametrize("path", CONTROL)
async def test_no_spelling_reaches_what_controls_the_engine(
    secured: Stand, path: str, method: str
) -> None:
    """400, 404 or 405 for each, with the best key there is; the engine hears nothing of it."""

    async def mark(exchange: Exchange) -> None:
        await exchange.send(json_response({}))

    secured.engine.script = mark
    for target in _spelled(path):
        head = f"{method} {target} HTTP/1.1\r\nHost: engine\r\nX-Mark: 1\r\nX-Api-Key: {VIP}\r\n"
        async with await RawClient.open(secured.proxy.url) as client:
            await client.send(head.encode() + b"Content-Length: 0\r\n\r\n")
            answer = await client.answer()
        assert answer.status in (400, 404, 405), target
        assert answer.error["code"] in ("invalid_request", "not_found"), target
    assert [seen.target for seen in secured.engine.requests if seen.header("x-mark")] == []
