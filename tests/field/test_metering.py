"""Is every request charged what it costs, whatever it looks like and however it ends?"""

import asyncio
import base64
import json

import pytest

from tests.support.lines import CHAT, holders
from tests.support.metering import Meter, level, limited
from tests.support.policies import policy, service_class
from tests.support.proxy_fixtures import ProxyStarter, Stand
from tests.support.raw_client import RawClient, ask, chat_body
from tests.support.scraping import outcomes, scrape
from tests.support.scripted_engine import ScriptedEngine, answering, chatting
from tests.support.vllm_answers import (
    DONE,
    chat_answer,
    chat_chunk,
    chunked,
    completion_answer,
    embeddings_answer,
    error_answer,
    event,
    json_response,
    responses_answer,
    stream_head,
    usage,
)
from tests.support.waiting import until

BURST = 100_000
SLACK = 12
"""So many seconds, and so tokens, may a test last."""


async def test_b04_prompts_are_charged_too(start_proxy: ProxyStarter) -> None:
    """10,000 tokens in and 1 out: two pass a bucket of 25,000, the loop is stopped at the third."""
    async with ScriptedEngine(
        answering(chat_answer(prompt_tokens=10_000, completion_tokens=1))
    ) as engine:
        proxy = await start_proxy(
            engine.url, documents=limited(tokensPerMinute=60, tokenBurst=25_000)
        )
        body = chat_body(text="x" * 40_000, max_tokens=1)
        answers = [await ask(proxy.url, CHAT, body) for _ in range(4)]
        assert [each.status for each in answers] == [200, 200, 429, 429]
        assert 25_000 - 20_002 <= await level(proxy) <= 25_000 - 20_002 + 30
        charged = (await scrape(proxy.admin_url)).total("giveway_tenant_tokens_total")
        assert charged == 20_002


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("path", "body", "data"),
    [
        (CHAT, chat_body(max_tokens=500), chat_answer(prompt_tokens=10, completion_tokens=20)),
        (
            "/v1/responses",
            {"model": "m", "input": "hello", "max_output_tokens": 500},
            responses_answer(input_tokens=10, output_tokens=20),
        ),
        (
            "/v1/responses",
            {"model": "m", "input": "hello", "max_output_tokens": 500, "stream": True},
            stream_head()
            + chunked(
                [
                    event({"type": "response.created", "response": {}}, name="response.created"),
                    event(
                        {
                            "type": "response.completed",
                            "response": {"usage": {"input_tokens": 10, "output_tokens": 20}},
                        },
                        name="response.completed",
                    ),
                ]
            ),
        ),
    ],
    ids=["chat", "responses", "responses-stream"],
)
async def test_b06_responses_are_reserved_and_settled_as_chat_is(
    meter: Meter, path: str, body: dict[str, object], data: bytes
) -> None:
    """500 of output and a small prompt are reserved, 10 + 20 are charged."""
    meter.stand.engine.script = answering(data)
    _, reserved, charged = await meter.cost(path, body)
    assert 500 - SLACK < reserved < 550
    assert charged == pytest.approx(30, abs=SLACK)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"model": "m", "messages": []}),
        (CHAT, {"model": "m"}),
        ("/v1/completions", {"model": "m", "prompt": [1] * 100}),
        ("/v1/completions", {"model": "m", "prompt": None}),
    ],
    ids=["no-messages", "nothing", "token-ids", "null"],
)
async def test_b08_an_unknown_size_does_not_take_the_whole_bucket(
    meter: Meter, path: str, body: dict[str, object]
) -> None:
    """What is reserved for it is what any small request reserves, so others pass beside it."""
    meter.stand.engine.script = answering(chat_answer())
    answer, reserved, _ = await meter.cost(path, body)
    assert answer.status == 200
    assert 1 <= reserved <= 500


async def test_b08_others_pass_beside_a_request_of_unknown_size(start_proxy: ProxyStarter) -> None:
    """While it is at the engine, a bucket of 1,000 has enough for a small one."""
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(
            engine.url, documents=limited(tokensPerMinute=60, tokenBurst=1000)
        )
        first = asyncio.create_task(ask(proxy.url, CHAT, {"model": "m", "messages": []}))
        await until(lambda: engine.busy == 1, what="it is at the engine")
        engine.script = chatting()
        assert (await ask(proxy.url, CHAT, chat_body())).status == 200
        gate.set()
        assert (await first).status == 200


async def test_b09_failing_requests_count_against_the_rate(start_proxy: ProxyStarter) -> None:
    """Every answer is 400: the limit on requests stops the loop, and no token is charged."""
    script = answering(error_answer(400, "Bad Request", "temperature is hot"))
    async with ScriptedEngine(script) as engine:
        proxy = await start_proxy(
            engine.url,
            documents=limited(
                requestsPerMinute=6, requestBurst=5, tokensPerMinute=60, tokenBurst=BURST
            ),
        )
        async with await RawClient.open(proxy.url) as client:
            statuses = [(await client.post(CHAT, chat_body())).status for _ in range(20)]
        assert statuses[:5] == [400] * 5
        assert set(statuses[6:]) == {429}
        assert len(engine.work) == statuses.count(400)
        assert await level(proxy) == BURST
        ends = await outcomes(proxy.admin_url)
        assert ends == {"engine_refused": statuses.count(400), "rate_limited": statuses.count(429)}


_DATA = base64.b64encode(b"\x89PNG" + bytes(1_425_000)).decode()
_PARTS = {
    "image": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_DATA}"}},
    "audio": {"type": "input_audio", "input_audio": {"data": _DATA, "format": "wav"}},
    "file": {"type": "file", "file": {"filename": "a.pdf", "file_data": _DATA}},
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("kind", _PARTS)
async def test_b12_media_count_by_the_piece(meter: Meter, kind: str) -> None:
    """1.9 MB of base64 and ten words take some thousand tokens, and arrive unchanged."""
    body = chat_body(max_tokens=100)
    text = {"type": "text", "text": "what is in this " * 3}
    body["messages"] = [{"role": "user", "content": [text, _PARTS[kind]]}]
    meter.stand.engine.script = answering(chat_answer())
    _, reserved, _ = await meter.cost(CHAT, body)
    assert 1024 <= reserved < 4096 + 300
    assert meter.stand.engine.work[-1].body == json.dumps(body).encode()


@pytest.mark.parametrize(("kind", "field"), [("image", "imageTokens"), ("audio", "audioTokens")])
async def test_b12_what_a_piece_counts_can_be_set(
    start_proxy: ProxyStarter, kind: str, field: str
) -> None:
    """A model that takes 85 tokens for a picture, and the policy says so."""
    document = policy(
        classes=[service_class("only", limits={"tokensPerMinute": 60, "tokenBurst": 100_000})],
        accounting={field: 85},
    )
    part = json.loads(json.dumps(_PARTS[kind]).replace(_DATA, _DATA[:100_000]))
    body = chat_body(max_tokens=10)
    body["messages"] = [{"role": "user", "content": [part]}]
    async with ScriptedEngine(answering(chat_answer())) as engine:
        proxy = await start_proxy(engine.url, documents=[document])
        answer = await ask(proxy.url, CHAT, body)
        left = int(answer.header("x-ratelimit-remaining-tokens") or 0)
        assert 85 <= 100_000 - left <= 85 + 10 + 25  # the piece, the output, a few words of JSON


async def test_b17_each_request_is_charged_what_it_used(start_proxy: ProxyStarter) -> None:
    """Two of 150 tokens empty a bucket of 300; the third waits for more."""
    data = chat_answer(prompt_tokens=50, completion_tokens=100)
    async with ScriptedEngine(answering(data)) as engine:
        proxy = await start_proxy(engine.url, documents=limited(tokensPerMinute=60, tokenBurst=300))
        answers = [await ask(proxy.url, CHAT, chat_body(max_tokens=100)) for _ in range(3)]
        assert [each.status for each in answers] == [200, 200, 429]
        samples = await scrape(proxy.admin_url)
        assert samples.total("giveway_tenant_tokens_total", kind="prompt") == 100
        assert samples.total("giveway_tenant_tokens_total", kind="completion") == 200


IDS = [1] * 50


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("path", "fields", "lowest", "highest"),
    [
        (CHAT, chat_body(max_tokens=1000, n=4), 4000, 4100),
        ("/v1/completions", {"prompt": "hi", "max_tokens": 1000, "best_of": 3}, 3000, 3010),
        ("/v1/completions", {"prompt": ["hi"] * 8, "max_tokens": 100}, 800, 820),
        ("/v1/completions", {"prompt": ["hi"] * 8, "max_tokens": 100, "n": 2}, 1600, 1620),
        ("/v1/completions", {"prompt": IDS, "max_tokens": 100}, 150, 150),
        ("/v1/completions", {"prompt": [IDS, IDS], "max_tokens": 100}, 300, 300),
        ("/v1/embeddings", {"input": ["hello you"] * 10}, 20, 40),
        ("/v1/embeddings", {"input": [IDS, IDS]}, 100, 100),
    ],
    ids=[
        *("n", "best_of", "strings", "strings-n", "ids", "lists-of-ids"),
        *("embeddings", "embeddings-ids"),
    ],
)
async def test_b23_every_answer_and_every_prompt_is_reserved(
    meter: Meter, path: str, fields: dict[str, object], lowest: int, highest: int
) -> None:
    """The reservation grows with n and with the list; usage (16) is what is charged."""
    made = embeddings_answer(prompt_tokens=16)
    if path == CHAT:
        made = chat_answer(prompt_tokens=7, completion_tokens=9)
    elif path == "/v1/completions":
        made = completion_answer(prompt_tokens=7, completion_tokens=9)
    meter.stand.engine.script = answering(made)
    answer, reserved, charged = await meter.cost(path, {"model": "m", **fields})
    assert answer.status == 200
    assert lowest - SLACK <= reserved <= highest + 1
    assert charged == pytest.approx(16, abs=SLACK)


NONSENSE: dict[str, tuple[object, bool]] = {
    "null": (None, False),
    "fields-null": ({"prompt_tokens": None, "completion_tokens": None}, False),
    "negative": ({"prompt_tokens": 5, "completion_tokens": -7}, True),
    "text": ({"prompt_tokens": "many", "completion_tokens": 3}, True),
    "fraction": ({"prompt_tokens": 5.5, "completion_tokens": 3}, True),
    "huge": ({"prompt_tokens": 10**18, "completion_tokens": 3}, True),
    "float-huge": ({"prompt_tokens": 1e300, "completion_tokens": 3}, True),
    "only-prompt": ({"prompt_tokens": 5}, False),
    "only-output": ({"completion_tokens": 5}, False),
    "a-list": ([1, 2], True),
    "true": ({"prompt_tokens": True, "completion_tokens": 3}, True),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("name", NONSENSE)
async def test_b26_nonsense_in_usage_is_clamped_and_counted(
    stand: Stand, name: str, stream: bool
) -> None:
    """The request is served, what is charged is small and not negative, nothing breaks after it."""
    report, is_doubtful = NONSENSE[name]
    if stream:
        last = {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": report}
        texts = [chat_chunk(text="a"), chat_chunk(text="b", finish_reason="stop")]
        data = stream_head() + chunked([*texts, event(last), DONE])
    else:
        data = json_response({"choices": [{"finish_reason": "stop"}], "usage": report})
    stand.engine.script = answering(data)
    before = await _doubtful(stand)
    answer, prompt, completion = await stand.charge_of(CHAT, chat_body(stream=stream))
    assert answer.status == 200
    assert 0 < prompt + completion < 1000
    assert min(prompt, completion) >= 0
    assert await _doubtful(stand) - before == is_doubtful
    stand.engine.script = chatting()
    assert (await ask(stand.proxy.url, CHAT, chat_body())).status == 200


async def _doubtful(stand: Stand) -> float:
    return (await scrape(stand.proxy.admin_url)).value("giveway_implausible_usage_total")


async def test_c27_what_expires_in_the_queue_costs_nothing(start_proxy: ProxyStarter) -> None:
    """50 requests reserve and expire: the bucket is as if they had never come."""
    gate = asyncio.Event()
    async with ScriptedEngine(chatting(gate=gate)) as engine:
        proxy = await start_proxy(
            engine.url, documents=limited(seats=1, tokensPerMinute=60, tokenBurst=BURST)
        )
        holding = await holders(proxy, engine, 1)
        hurry = {"X-Giveway-Timeout-Ms": "100"}
        answers = await asyncio.gather(
            *(ask(proxy.url, CHAT, chat_body(max_tokens=900), headers=hurry) for _ in range(50))
        )
        assert {each.status for each in answers} == {504}
        gate.set()
        await asyncio.gather(*holding)
        assert len(engine.work) == 1
        charged = (await scrape(proxy.admin_url)).total("giveway_tenant_tokens_total")
        assert charged == usage(10, 3)["total_tokens"]
        assert BURST - charged <= await level(proxy) <= BURST - charged + 20
