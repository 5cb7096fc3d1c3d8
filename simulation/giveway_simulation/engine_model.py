"""What does one vLLM pod do with the requests it was given? Time in, events out.

The scheduler of vLLM's V1 engine (vllm/v1/core/sched/scheduler.py, read in 0.32.0) in its own
order: each step first gives one token to every decoding sequence, then the next chunk to a prompt
that is partly computed, then admits from the waiting queue while there are seats, batched tokens
and KV blocks. Rules kept:

- A waiting request is admitted only if the KV blocks for its *whole* prompt are free now (vLLM's
  `scheduler_reserve_full_isl`), though only the chunk's blocks are taken. The head blocks the line.
- A running sequence that finds no block evicts another: the last admitted under fcfs, the worst
  (priority, arrival) under priority. The evicted one goes back to the front of the queue, or to
  its place by priority, and computes everything again. A step that evicts admits nobody.
- Priority orders the waiting queue and picks victims. It never takes a seat from a running request.

Always true: the blocks in use never exceed the cache, at most one prompt is partly computed, every
submitted sequence is finished once or aborted.

A step costs time proportional to what changes in it, not to the number of decoding sequences: all
of them grow by one token a step, so their ends stand in a calendar and their demand for blocks in a
table by phase.
"""

import heapq
from collections import OrderedDict, defaultdict
from collections.abc import KeysView
from dataclasses import dataclass
from enum import StrEnum

from giveway_simulation.engine_pods import Pod


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
    """Prompt and decode tokens that it computes."""
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


class _Sequence:
    """A submitted work with its progress. Times are counted in steps (`EngineModel._clock`)."""

    __slots__ = (
        "arrival",
        "blocks",
        "computed",
        "decoding_since",
        "generated",
        "preemptions",
        "running",
        "target",
        "work",
    )

    def __init__(self, work: Work, *, arrival: int) -> None:
        self.work = work
        self.arrival = arrival
        self.target = work.prompt_tokens
        """Tokens to compute before the next token comes out."""
        self.computed = 0
        """While it decodes: as of `decoding_since`."""
        self.generated = 0
        """While it decodes: as of `decoding_since`."""
        self.blocks = 0
        """While it is partly computed; those of a decoding one follow from its context."""
        self.decoding_since = -1
        self.running = False
        self.preemptions = 0

    @property
    def order(self) -> tuple[int, int]:
        return (self.work.priority, self.arrival)


class _FcfsQueue:
    """First come, first served; an evicted sequence goes back to the front."""

    def __init__(self) -> None:
        self._sequences: OrderedDict[int, _Sequence] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sequences)

    def push(self, sequence: _Sequence) -> None:
        self._sequences[sequence.work.key] = sequence
        if sequence.preemptions:
            self._sequences.move_to_end(sequence.work.key, last=False)

    def peek(self) -> _Sequence:
        return next(iter(self._sequences.values()))

    def remove(self, key: int) -> None:
        del self._sequences[key]


class _PriorityQueue:
    """Lowest (priority, arrival) first. A removed entry stays in the heap until it comes up."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int]] = []
        self._sequences: dict[int, _Sequence] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def push(self, sequence: _Sequence) -> None:
        self._sequences[sequence.work.key] = sequence
        heapq.heappush(self._heap, (*sequence.order, sequence.work.key))

    def peek(self) -> _Sequence:
        while True:
            sequence = self._sequences.get(self._heap[0][2])
            if sequence is not None and sequence.order == self._heap[0][:2]:
                return sequence
            heapq.heappop(self._heap)

    def remove(self, key: int) -> None:
        del self._sequences[key]


class EngineModel:
    """One engine. The caller alternates `start_step` and `finish_step`.

    `submit` and `abort` may be called at any time; they take effect in the next planned step, as in
    the real engine. Keys that are unknown (ended already) are ignored by `abort`.
    """

    def __init__(self, pod: Pod, limits: EngineLimits) -> None:
        self._pod = pod
        self._limits = limits
        self._waiting: _FcfsQueue | _PriorityQueue = (
            _FcfsQueue() if limits.scheduling_policy is SchedulingPolicy.FCFS else _PriorityQueue()
        )
        self._sequences: dict[int, _Sequence] = {}
        self._running: dict[int, _Sequence] = {}
        """In the order of admission."""
        self._decoding: dict[int, _Sequence] = {}
        self._partial: _Sequence | None = None
        self._prefilled: list[_Sequence] = []
        """Those whose prompt the present step completes."""
        self._clock = 0
        self._ends: defaultdict[int, list[_Sequence]] = defaultdict(list)
        self._phases = [0] * limits.block_tokens
        """Decoding sequences by (context - clock) modulo the block size: those of one phase need a
        new block in the same step."""
        self._context_tokens = 0
        self._blocks_used = 0
        self._arrivals = 0
        self._in_step = False
        self._preemptions = 0
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._steps = 0

    def submit(self, work: Work) -> None:
        """Put a sequence into the waiting queue.

        Raises `ValueError` for a key that is live, for empty work, and for a sequence that could
        never fit into the KV cache (vLLM refuses to start with such a `max_model_len`).
        """
        if work.key in self._sequences:
            raise ValueError(f"{work.key} was submitted twice")
        if work.prompt_tokens < 1 or work.output_tokens < 1:
            raise ValueError("a sequence has one prompt token and one output token at least")
        if self._blocks_for(work.prompt_tokens + work.output_tokens) > self._limits.kv_blocks:
            raise ValueError("the sequence is longer than the KV cache")
        self._arrivals += 1
        sequence = _Sequence(work, arrival=self._arrivals)
        self._sequences[work.key] = sequence
        self._waiting.push(sequence)

    def abort(self, key: int) -> bool:
        """Forget a sequence; what the present step computes for it is lost. False: unknown."""
        sequence = self._sequences.pop(key, None)
        if sequence is None:
            return False
        if sequence.running:
            self._release(sequence)
        else:
            self._waiting.remove(key)
        return True

    def start_step(self, *, now_s: float) -> StepStart | None:
        """Plan and begin the next step. None: there is nothing to do."""
        if self._in_step:
            raise ValueError("the last step has not ended")
        if not self._sequences:
            return None
        preempted = self._make_room()
        decoding = len(self._decoding)
        context_tokens = self._context_tokens
        self._blocks_used += self._phases[self._phase]
        self._clock += 1
        self._context_tokens += decoding
        chunks: list[tuple[int, int]] = []
        budget = self._limits.max_num_batched_tokens - decoding
        partial = self._partial
        if partial is not None and budget:
            self._partial = None
            budget -= self._compute(partial, budget, chunks=chunks)
        admitted = [] if preempted else self._admit(budget, chunks=chunks)
        tokens = decoding + sum(m for m, _ in chunks)
        self._in_step = True
        self._steps += 1
        duration_s = self._pod.step_s(
            tokens,
            sequences=decoding + len(chunks),
            context_tokens=context_tokens,
            attention_products=sum(m * (x + m / 2) for m, x in chunks),
        )
        self._prompt_tokens += tokens - decoding
        return StepStart(
            end_s=now_s + duration_s,
            tokens=tokens,
            admitted=tuple(admitted),
            preempted=tuple(preempted),
        )

    def finish_step(self) -> StepEnd:
        """End the step: tokens come out."""
        if not self._in_step:
            raise ValueError("no step was begun")
        self._in_step = False
        first_tokens: list[int] = []
        finished: list[int] = []
        self._generation_tokens += len(self._decoding)
        for sequence in self._ends.pop(self._clock, ()):
            if self._ends_now(sequence):
                finished.append(sequence.work.key)
                self._forget(sequence)
        for sequence in self._prefilled:
            if not sequence.running:
                continue
            self._generation_tokens += 1
            if not sequence.generated:
                first_tokens.append(sequence.work.key)
            sequence.generated += 1
            if sequence.generated >= sequence.work.output_tokens:
                finished.append(sequence.work.key)
                self._forget(sequence)
            else:
                self._begin_decoding(sequence)
        self._prefilled.clear()
        return StepEnd(first_tokens=tuple(first_tokens), finished=tuple(finished))

    def decoding(self) -> KeysView[int]:
        """Keys that decode. After `finish_step`: those that got a token and go on."""
        return self._decoding.keys()

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(
            running=len(self._running),
            waiting=len(self._waiting),
            kv_blocks_used=self._blocks_used,
            kv_usage_ratio=self._blocks_used / self._limits.kv_blocks,
            preemptions=self._preemptions,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generation_tokens,
            steps=self._steps,
        )

    @property
    def _phase(self) -> int:
        return -self._clock % self._limits.block_tokens

    def _make_room(self) -> list[int]:
        """Evict until everything that runs finds the blocks of its next step."""
        preempted: list[int] = []
        while self._demanded_blocks() > self._limits.kv_blocks - self._blocks_used:
            preempted.append(self._preempt())
        return preempted

    def _demanded_blocks(self) -> int:
        demanded = self._phases[self._phase]
        partial = self._partial
        if partial is not None:
            budget = self._limits.max_num_batched_tokens - len(self._decoding)
            reached = min(partial.computed + budget, partial.target)
            demanded += self._blocks_for(reached) - partial.blocks
        return demanded

    def _admit(self, budget: int, *, chunks: list[tuple[int, int]]) -> list[int]:
        admitted: list[int] = []
        while budget and len(self._waiting) and len(self._running) < self._limits.max_num_seqs:
            sequence = self._waiting.peek()
            if self._blocks_for(sequence.target) > self._limits.kv_blocks - self._blocks_used:
                break
            key = sequence.work.key
            self._waiting.remove(key)
            self._running[key] = sequence
            sequence.running = True
            admitted.append(key)
            # The last prompt token is always computed, as in vLLM: its logits give the next token.
            sequence.computed = min(sequence.work.cached_tokens, sequence.target - 1)
            budget -= self._compute(sequence, budget, chunks=chunks)
        return admitted

    def _compute(self, sequence: _Sequence, budget: int, *, chunks: list[tuple[int, int]]) -> int:
        """Plan the next chunk of a prompt and take its blocks; returns the chunk's tokens."""
        chunk = min(budget, sequence.target - sequence.computed)
        chunks.append((chunk, sequence.computed))
        sequence.computed += chunk
        blocks = self._blocks_for(sequence.computed)
        self._blocks_used += blocks - sequence.blocks
        sequence.blocks = blocks
        if sequence.computed == sequence.target:
            self._prefilled.append(sequence)
        else:
            self._partial = sequence
        return chunk

    def _begin_decoding(self, sequence: _Sequence) -> None:
        sequence.decoding_since = self._clock
        self._decoding[sequence.work.key] = sequence
        self._phases[(sequence.computed - self._clock) % self._limits.block_tokens] += 1
        self._context_tokens += sequence.computed
        self._ends[self._clock + sequence.work.output_tokens - sequence.generated].append(sequence)

    def _ends_now(self, sequence: _Sequence) -> bool:
        """False for a calendar entry whose sequence was aborted or evicted since."""
        since = sequence.decoding_since
        return since >= 0 and self._clock - since == (
            sequence.work.output_tokens - sequence.generated
        )

    def _preempt(self) -> int:
        """Evict the victim that the policy names, and requeue it with all it has generated."""
        if self._limits.scheduling_policy is SchedulingPolicy.PRIORITY:
            victim = max(self._running.values(), key=lambda sequence: sequence.order)
        else:
            victim = next(reversed(self._running.values()))
        if victim.decoding_since >= 0:
            victim.generated += self._clock - victim.decoding_since
        self._release(victim)
        victim.target = victim.work.prompt_tokens + victim.generated
        victim.preemptions += 1
        self._preemptions += 1
        self._waiting.push(victim)
        return victim.work.key

    def _release(self, sequence: _Sequence) -> None:
        """Give back seat and blocks."""
        key = sequence.work.key
        del self._running[key]
        sequence.running = False
        if sequence.decoding_since >= 0:
            del self._decoding[key]
            context = sequence.computed + self._clock - sequence.decoding_since
            self._phases[(sequence.computed - sequence.decoding_since) % len(self._phases)] -= 1
            self._context_tokens -= context
            self._blocks_used -= self._blocks_for(context)
            sequence.decoding_since = -1
        else:
            self._blocks_used -= sequence.blocks
            if self._partial is sequence:
                self._partial = None
        sequence.blocks = 0
        sequence.computed = 0

    def _forget(self, sequence: _Sequence) -> None:
        self._release(sequence)
        del self._sequences[sequence.work.key]

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._limits.block_tokens)
