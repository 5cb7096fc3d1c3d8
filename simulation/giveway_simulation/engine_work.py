"""What goes into the engine model, and what comes out of it?"""

from dataclasses import dataclass
from enum import StrEnum


class SchedulingPolicy(StrEnum):
    """vLLM's `--scheduling-policy`."""

    FCFS = "fcfs"
    PRIORITY = "priority"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """vLLM's settings. Defaults: those of its API server on large GPUs, but for the batched tokens.

    `max_num_batched_tokens` bounds the gap between two tokens of a stream: 8,192, vLLM's default on
    large GPUs, gives gaps of 180 to 250 ms; 1,024 gives 49 ms.
    """

    max_num_seqs: int = 1024
    max_num_batched_tokens: int = 1024
    kv_cache_tokens: int = 414_000
    block_tokens: int = 16
    scheduling_policy: SchedulingPolicy = SchedulingPolicy.FCFS

    def __post_init__(self) -> None:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) is less than"
                f" max_num_seqs ({self.max_num_seqs})"
            )
        if self.max_num_seqs < 1 or self.block_tokens < 1 or self.kv_blocks < 1:
            raise ValueError("an engine needs a seat and a block at least")

    @property
    def kv_blocks(self) -> int:
        """Whole blocks in the KV cache."""
        return self.kv_cache_tokens // self.block_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One sequence: what it takes and what it will give. `key` is the caller's, unique."""

    key: int
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    """Lower goes first; without effect under fcfs."""
    cached_tokens: int = 0
    """Leading prompt tokens that a prefix cache holds: they take blocks, and no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStart:
    """A step was planned and began."""

    end_s: float
    tokens: int
    """Prompt and decode tokens that it computes. 0: it only evicted."""
    admitted: tuple[int, ...]
    """Keys that left the waiting queue (again, if they had been evicted)."""
    preempted: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd:
    """A step ended. Each key of `EngineModel.decoding()` and of `finished` got one token in it."""

    first_tokens: tuple[int, ...]
    """Keys whose very first token this was; some of them may be in `finished` too."""
    finished: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatistics:
    """What vLLM's own metrics say, and the sums since the start."""

    running: int
    waiting: int
    kv_blocks_used: int
    kv_usage_ratio: float
    preemptions: int
    prompt_tokens: int
    """Computed prompt tokens; a prompt that was evicted counts again."""
    generation_tokens: int
    steps: int
