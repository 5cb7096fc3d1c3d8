"""Do embeddings of a real vLLM pass unchanged, and are they charged?"""

import json

import pytest

from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import ask
from tests.support.scraping import scrape
from tests.vllm.asking import PATHS, body_of, without_what_varies
from tests.vllm.conftest import EngineWish
from tests.vllm.real_engine import RealEngine
from tests.vllm.tee import Tee

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(2400),
    pytest.mark.asyncio(loop_scope="module"),
]

ENGINE = EngineWish(["--runner", "pooling", "--convert", "embed"])


@pytest.mark.parametrize("form", ["float", "base64"])
async def test_vectors_equal_those_of_a_direct_run(
    engine: RealEngine, start_proxy: ProxyStarter, form: str
) -> None:
    """The same input to the engine and through the proxy gives the same bytes, ids aside."""
    proxy = await start_proxy(engine.url)
    body = body_of("embeddings") | {"encoding_format": form}
    direct = await ask(engine.url, PATHS["embeddings"], body)
    through = await ask(proxy.url, PATHS["embeddings"], body)
    assert through.status == direct.status == 200
    assert without_what_varies(through.body) == without_what_varies(direct.body)


async def test_prompt_tokens_are_charged_as_counted(
    engine: RealEngine, tee: Tee, start_proxy: ProxyStarter
) -> None:
    """B23: a list of inputs is charged what usage says; the engine is told our priority."""
    proxy = await start_proxy(tee.url)
    body = body_of("embeddings", text="some words " * 30) | {"priority": -77}
    answer = await ask(proxy.url, PATHS["embeddings"], body)
    usage = answer.json()["usage"]
    assert isinstance(usage, dict)
    samples = await scrape(proxy.admin_url)
    charged = samples.total("giveway_tenant_tokens_total", kind="prompt")
    assert charged == usage["prompt_tokens"] > 300
    assert samples.total("giveway_tenant_tokens_total", kind="completion") == 0
    sent, _ = tee.last_post()
    seen = json.loads(sent.partition(b"\r\n\r\n")[2])
    assert seen.get("priority") != -77
    assert {key: value for key, value in seen.items() if key != "priority"} == {
        key: value for key, value in body.items() if key != "priority"
    }
