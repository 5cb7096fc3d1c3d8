"""How fast, and how large, is one vLLM pod?

A step that computes `n` tokens, for `B` decoding sequences whose contexts add up to `S` tokens and
for prefill chunks of `m` tokens each at context `x`, takes

    T = (W^k + (c n)^k)^(1/k) + o + h S + a sum m (x + m/2) + b (B + chunks)

`W` is the time to read the weights, `c` the arithmetic of a token, `k` how sharply one takes over
from the other, `h` reading the KV cache, `a` attention inside a chunk, `b` the work per sequence
and `o` the fixed cost of a step. The form and the scheduler's rules were checked against recorded
runs of vLLM 0.19.0: per-request latency within 0.5 to 1.4 % on average; fitted on one half of a
run they predict the other half within 0.5 to 2.0 %.

The constants come from three kinds of places, as each entry says: fitted to those runs, taken from
the tables that the Vidur simulator publishes (https://github.com/microsoft/vidur), or scaled from
them by memory bandwidth and arithmetic.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """The constants of one GPU (or group of GPUs) with one model."""

    weights_ms: float
    """W"""
    token_us: float
    """c"""
    knee: float
    """k"""
    context_token_us: float
    """h"""
    attention_us: float
    """a"""
    sequence_us: float
    """b"""
    overhead_ms: float
    """o"""
    kv_cache_tokens: int
    """What fits into the KV cache, in tokens."""

    def step_s(
        self, tokens: int, *, sequences: int, context_tokens: int, attention_products: float
    ) -> float:
        """Duration of one step.

        `tokens` is n, `sequences` B + chunks, `context_tokens` S and `attention_products` the sum
        of m (x + m/2).
        """
        knee = self.knee
        powers: float = self.weights_ms**knee + (self.token_us * tokens / 1000.0) ** knee
        compute_ms: float = powers ** (1.0 / knee)
        others_us = (
            self.context_token_us * context_tokens
            + self.attention_us * attention_products
            + self.sequence_us * sequences
        )
        return (compute_ms + self.overhead_ms) / 1000.0 + others_us / 1e6


PODS: Mapping[str, Pod] = {
    # Vidur's H100 figures of Llama-2-7B (W 5.61, c 20.4) times 1.08: more parameters, larger head.
    "h100-llama-3-8b": Pod(
        weights_ms=6.1,
        token_us=23.5,
        knee=1.5,
        context_token_us=0.076,
        attention_us=0.0009,
        sequence_us=6.0,
        overhead_ms=0.5,
        kv_cache_tokens=414_000,
    ),
    # Fitted to Vidur's A100 figures of Llama-3-8B, median error 2.4 %; h and a scaled.
    "a100-llama-3-8b": Pod(
        weights_ms=9.9,
        token_us=69.0,
        knee=1.5,
        context_token_us=0.105,
        attention_us=0.0028,
        sequence_us=6.0,
        overhead_ms=0.8,
        kv_cache_tokens=400_000,
    ),
    # Fitted to Vidur's figures of Llama-2-70B on four H100 (W 13.8, c 55.7); h and a scaled.
    "h100-tp4-llama-3-70b": Pod(
        weights_ms=14.5,
        token_us=58.0,
        knee=1.3,
        context_token_us=0.048,
        attention_us=0.0014,
        sequence_us=8.0,
        overhead_ms=1.2,
        kv_cache_tokens=390_000,
    ),
    # Fitted to a recorded run of vLLM 0.19.0. Its KV cache never filled: the size is a guess from
    # 96 GB of memory, which a run that fills it would replace.
    "rtx-pro-6000-llama-3.1-8b": Pod(
        weights_ms=14.6,
        token_us=45.9,
        knee=1.5,
        context_token_us=0.070,
        attention_us=0.0022,
        sequence_us=5.1,
        overhead_ms=0.5,
        kv_cache_tokens=490_000,
    ),
    # The same; 184,000 tokens were in use without a preemption, the true size is at least that.
    "rtx-pro-6000-qwen3-32b": Pod(
        weights_ms=28.4,
        token_us=165.0,
        knee=1.5,
        context_token_us=0.144,
        attention_us=0.0043,
        sequence_us=10.2,
        overhead_ms=1.0,
        kv_cache_tokens=184_000,
    ),
    # The same; 230 preemptions.
    "rtx-4090-llama-3.1-8b": Pod(
        weights_ms=15.4,
        token_us=100.0,
        knee=1.5,
        context_token_us=0.154,
        attention_us=0.0049,
        sequence_us=2.2,
        overhead_ms=0.5,
        kv_cache_tokens=41_400,
    ),
}

DEFAULT_POD = "h100-llama-3-8b"
