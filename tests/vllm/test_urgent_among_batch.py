"""How long does an urgent request wait behind batch work for its first token, with us and not?"""

import asyncio

import pytest

from tests.support.policies import policy
from tests.support.proxy_fixtures import ProxyStarter
from tests.vllm.asking import Stream, body_of
from tests.vllm.conftest import EngineWish
from tests.vllm.real_engine import SLOW, RealEngine

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(2400),
    pytest.mark.asyncio(loop_scope="module"),
]

ENGINE = EngineWish(["--scheduling-policy", "priority", "--max-num-seqs", "4"], SLOW)
BATCH = 12
BATCH_TOKENS = 120


async def first_token_behind_batch(url: str) -> float:
    """Seconds to the urgent request's first token, sent once the batch streams are under way."""
    streams = [
        await Stream.open(
            url,
            "chat",
            body_of("chat", stream=True, tokens=BATCH_TOKENS, text=f"batch {number}"),
            {"X-Giveway-Class": "batch"},
        )
        for number in range(BATCH)
    ]
    await streams[0].until_text()
    rest = [asyncio.create_task(streams[0].to_end())]
    rest += [asyncio.create_task(_whole(stream)) for stream in streams[1:]]
    urgent = await Stream.open(
        url,
        "chat",
        body_of("chat", stream=True, tokens=4, text="urgent"),
        {"X-Giveway-Class": "realtime"},
    )
    waited_s = await urgent.until_text()
    await urgent.to_end()
    bodies = await asyncio.gather(*rest)
    assert all(body.endswith(b"data: [DONE]\n\n") for body in bodies)
    return waited_s


async def _whole(stream: Stream) -> bytes:
    await stream.until_text()
    return await stream.to_end()


async def test_an_urgent_request_starts_at_once_through_the_proxy(
    engine: RealEngine, start_proxy: ProxyStarter, capsys: pytest.CaptureFixture[str]
) -> None:
    """C20, Y14: 12 batch streams on 4 seats: through the proxy the urgent one waits a third."""
    proxy = await start_proxy(engine.url, documents=[policy(seats=4, reserved_seats=1)])
    await first_token_behind_batch(engine.url)
    direct_s = await first_token_behind_batch(engine.url)
    through_s = await first_token_behind_batch(proxy.url)
    with capsys.disabled():
        print(f"\nurgent first token: direct {direct_s:.2f} s, through giveway {through_s:.2f} s")
    assert through_s < direct_s / 3
