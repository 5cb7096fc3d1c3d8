"""What is measured?

Lock step makes a chunk's true cost visible: a stream's next token is made when the client has the
last one, so nothing can be joined. An engine that writes as fast as it can rewards slow proxies:
whoever falls behind reads many tokens at once.
"""

from dataclasses import dataclass

from giveway_benchmarks.load_program import Group
from giveway_benchmarks.stands import CREDENTIALS


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of load."""

    name: str
    title: str
    group: Group
    warm_s: float = 0.4
    window_s: float = 1.2
    awake: bool = False
    """The load does not sleep. At full load only: in realtime the kernel stops whoever never sleeps
    for a twentieth of each second, which would spoil delays."""


def _streams(clients: int, tokens: str, tokens_per_s: float = 0.0) -> Group:
    return Group(
        clients=clients,
        plan="stream",
        arrivals="once",
        tokens=tokens,
        tokens_per_s=tokens_per_s,
        headers=CREDENTIALS,
    )


REQUESTS = Scenario(
    name="requests",
    title="non-stream requests, 64 connections",
    group=Group(clients=64, plan="answer", headers=CREDENTIALS),
    awake=True,
)
CHUNKS_64 = Scenario(
    name="chunks-64",
    title="SSE chunks, 64 streams in lock step",
    group=_streams(64, "lockstep"),
    awake=True,
)
CHUNKS_512 = Scenario(
    name="chunks-512",
    title="SSE chunks, 512 streams in lock step",
    group=_streams(512, "lockstep"),
    awake=True,
    warm_s=0.8,
)
SPREAD = Scenario(
    name="spread",
    title="5,000 chunks/s, spread: 100 streams of 50 tokens/s",
    group=_streams(100, "spread", 50.0),
)
STEP = Scenario(
    name="step",
    title="5,000 chunks/s, 100 streams on one engine step",
    group=_streams(100, "step", 50.0),
)
SCENARIOS = {each.name: each for each in (REQUESTS, CHUNKS_64, CHUNKS_512, SPREAD, STEP)}
