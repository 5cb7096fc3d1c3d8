"""What does a token bucket hold, and what was taken from it?

One class with one bucket, so that a test can do the arithmetic: `limited` makes its policy, `level`
reads the bucket, `Meter.cost` tells what one request took out of it.
"""

from dataclasses import dataclass
from typing import Literal

from tests.support.policies import Spec, policy, service_class
from tests.support.processes import Proxy
from tests.support.proxy_fixtures import Stand
from tests.support.raw_client import Answer, ask

ONLY = "only"


def limited(
    *,
    over_limit: Literal["Reject", "Queue"] = "Reject",
    time_to_live_s: int | None = None,
    seats: int = 64,
    **limits: int,
) -> list[Spec]:
    """A policy with one class that has these limits."""
    only = service_class(ONLY, limits=limits, over_limit=over_limit, time_to_live_s=time_to_live_s)
    return [policy(classes=[only], seats=seats, batch_maximum=seats)]


async def level(proxy: Proxy) -> float:
    """What the only class's token bucket holds."""
    classes = (await ask(proxy.admin_url, "/status")).json()["classes"]
    assert isinstance(classes, list)
    return float(classes[0]["tokens"]["level"])


@dataclass(frozen=True, slots=True)
class Meter:
    """A stand with one bucket so large that no test empties it, and that hardly fills again."""

    stand: Stand

    async def cost(self, path: str, body: object) -> tuple[Answer, int, float]:
        """Send one request; its answer, what it had reserved at the time of its answer's head, and
        what the bucket lacks after it. Both are short of what came in meanwhile: one a second."""
        before = await level(self.stand.proxy)
        answer = await ask(self.stand.proxy.url, path, body)
        remaining = answer.header("x-ratelimit-remaining-tokens")
        assert remaining is not None, answer
        await self.stand.aftermath.check()
        return answer, round(before) - int(remaining), before - await level(self.stand.proxy)
