"""Engines and requests for tests of the simulation package."""

from giveway_simulation.emulator import Emulator
from giveway_simulation.engine_pods import Pod


def flat_pod(*, step_ms: float) -> Pod:
    """A pod whose every step takes the same time, whatever it computes."""
    return Pod(
        weights_ms=step_ms,
        token_us=0.0,
        knee=1.0,
        context_token_us=0.0,
        attention_us=0.0,
        sequence_us=0.0,
        overhead_ms=0.0,
        kv_cache_tokens=10_000,
    )


def url_of(emulator: Emulator) -> str:
    return f"http://127.0.0.1:{emulator.port}"


def chat(
    *, max_tokens: int | None = 4, text: str = "hello there", **more: object
) -> dict[str, object]:
    body: dict[str, object] = {"messages": [{"role": "user", "content": text}], **more}
    return body if max_tokens is None else body | {"max_tokens": max_tokens}
