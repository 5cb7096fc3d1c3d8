"""What does one vLLM pod do with the requests it was given? Time in, events out.

The scheduler of vLLM's V1 engine (vllm/v1/core/sched/scheduler.py, read in 0.32.0) in its own
order: each step first gives one token to every decoding sequence, then the next chunk to a prompt
that is partly computed, then admits from the waiting queue while there are seats, batched tokens
and KV blocks. Rules kept:

- A waiting request is admitted only if the KV blocks for its *whole* prompt are free now (vLLM's
  `scheduler_reserve_full_isl`), though only the chunk's blocks are taken. The head blocks the line.
- A running sequence that finds no block evicts another: the last admitted under fcfs, the worst
  (priority, arrival) under priority. The evicted one goes back to the front of the queue, or to
  its place by priority, and computes everything again. A step that evicts admits nobody. One that
  has to evict itself ends the planning: those admitted after it get no token in this step.
- Priority orders the waiting queue and picks victims. It never takes a seat from a running request.

Always true: the blocks in use never exceed the cache, at most one prompt is partly computed, every
submitted sequence is finished once or aborted.

A step costs time proportional to what changes in it, not to the number of decoding sequences: all
of them grow by one token a step, so their ends stand in a calendar and their demand for blocks in a
table by phase.
"""

from collections import defaultdict
from collections.abc import KeysView

from giveway_simulation.engine_pods import Pod
from giveway_simulation.engine_waiting import FcfsQueue, PriorityQueue, Sequence
from giveway_simulation.engine_work import (
    EngineLimits,
    EngineStatistics,
    SchedulingPolicy,
    StepEnd,
    StepStart,
    Work,
)

__all__ = [
    "EngineLimits",
    "EngineModel",
    "EngineStatistics",
    "SchedulingPolicy",
    "StepEnd",
    "StepStart",
    "Work",
]


class EngineModel:
    """One engine. The caller alternates `start_step` and `finish_step`.

    `submit` and `abort` may be called at any time; they take effect in the next planned step, as in
    the real engine. Keys that are unknown (ended already) are ignored by `abort`.
    """

    def __init__(self, pod: Pod, limits: EngineLimits) -> None:
        self._pod = pod
        self._limits = limits
        self._waiting: FcfsQueue | PriorityQueue = (
            FcfsQueue() if limits.scheduling_policy is SchedulingPolicy.FCFS else PriorityQueue()
        )
        self._sequences: dict[int, Sequence] = {}
        self._running: dict[int, Sequence] = {}
        """In the order of admission."""
        self._decoding: dict[int, Sequence] = {}
        self._partial: Sequence | None = None
        self._prefilled: list[Sequence] = []
        """Those whose prompt the present step completes."""
        self._skipped: list[Sequence] = []
        """Those that could decode but sit the present step out."""
        self._clock = 0
        self._ends: defaultdict[int, list[Sequence]] = defaultdict(list)
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
        sequence = Sequence(work, arrival=self._arrivals)
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
        for sequence in self._skipped:
            if sequence.running:
                self._begin_decoding(sequence)
        self._skipped.clear()
        preempted, chunk = self._make_room()
        decoding = len(self._decoding)
        context_tokens = self._context_tokens
        self._blocks_used += self._phases[-self._clock % self._limits.block_tokens]
        self._clock += 1
        self._context_tokens += decoding
        chunks: list[tuple[int, int]] = []
        budget = self._limits.max_num_batched_tokens - decoding
        partial = self._partial
        if partial is not None and chunk:
            self._partial = None
            budget -= self._compute(partial, chunk, chunks=chunks)
        admitted = [] if preempted else self._admit(budget, chunks=chunks)
        tokens = decoding + sum(m for m, _ in chunks)
        self._in_step = True
        self._steps += 1
        self._prompt_tokens += tokens - decoding
        return StepStart(
            end_s=now_s + self._duration_s(tokens, chunks=chunks, context_tokens=context_tokens),
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

    def _duration_s(
        self, tokens: int, *, chunks: list[tuple[int, int]], context_tokens: int
    ) -> float:
        if not tokens:
            # Who evicted itself was first in line: nothing is computed, the plan is made anew.
            return self._pod.overhead_ms / 1000.0
        return self._pod.step_s(
            tokens,
            sequences=len(self._decoding) + len(chunks),
            context_tokens=context_tokens,
            attention_products=sum(m * (x + m / 2) for m, x in chunks),
        )

    def _make_room(self) -> tuple[list[int], int]:
        """Evict until everything that runs finds the blocks of its next step.

        Returns the evicted keys, and how many tokens the partly computed prompt gets.
        """
        partial = self._partial
        demanded = self._phases[-self._clock % self._limits.block_tokens]
        chunk = 0
        if partial is not None:
            chunk = self._chunk(partial, self._limits.max_num_batched_tokens - len(self._decoding))
            demanded += self._blocks_for(partial.computed + chunk) - partial.blocks
        free = self._limits.kv_blocks - self._blocks_used
        return ([], chunk) if demanded <= free else self._evict(free)

    def _evict(self, free: int) -> tuple[list[int], int]:
        """The engine's own walk over what runs, in order, as far as there are blocks.

        Who evicts itself ends the walk, and those behind it sit this step out.
        """
        order = list(self._running.values())
        budget = self._limits.max_num_batched_tokens
        taken: dict[int, tuple[int, int]] = {}
        """Key -> (tokens, blocks) of those that were planned."""
        preempted: list[int] = []
        at = 0
        while at < len(order) and budget:
            sequence = order[at]
            context = self._context_of(sequence)
            tokens = 1 if sequence.decoding_since >= 0 else self._chunk(sequence, budget)
            needed = self._blocks_for(context + tokens) - self._blocks_for(context)
            while needed > free and sequence.running:
                victim = self._victim()
                place = order.index(victim)
                del order[place]
                tokens_back, blocks_back = taken.pop(victim.work.key, (0, 0))
                budget += tokens_back
                at -= place < at
                free += self._blocks_for(self._context_of(victim)) + blocks_back
                self._preempt(victim)
                preempted.append(victim.work.key)
            if not sequence.running:
                break
            taken[sequence.work.key] = (tokens, needed)
            free -= needed
            budget -= tokens
            at += 1
        for sequence in order[at:]:
            if sequence.decoding_since >= 0:
                self._skip(sequence)
        partial = self._partial
        chunk = 0 if partial is None else taken.get(partial.work.key, (0, 0))[0]
        return preempted, chunk

    def _victim(self) -> Sequence:
        if self._limits.scheduling_policy is SchedulingPolicy.PRIORITY:
            return max(self._running.values(), key=lambda sequence: sequence.order)
        return next(reversed(self._running.values()))

    def _chunk(self, sequence: Sequence, budget: int) -> int:
        return min(budget, sequence.target - sequence.computed)

    def _context_of(self, sequence: Sequence) -> int:
        """Tokens of it that are in the KV cache."""
        if sequence.decoding_since < 0:
            return sequence.computed
        return sequence.computed + self._clock - sequence.decoding_since

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

    def _compute(self, sequence: Sequence, budget: int, *, chunks: list[tuple[int, int]]) -> int:
        """Plan the next chunk of a prompt and take its blocks; returns the chunk's tokens."""
        chunk = self._chunk(sequence, budget)
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

    def _begin_decoding(self, sequence: Sequence) -> None:
        sequence.decoding_since = self._clock
        self._decoding[sequence.work.key] = sequence
        self._phases[(sequence.computed - self._clock) % self._limits.block_tokens] += 1
        self._context_tokens += sequence.computed
        self._ends[self._clock + sequence.work.output_tokens - sequence.generated].append(sequence)

    def _ends_now(self, sequence: Sequence) -> bool:
        """False for a calendar entry whose sequence was aborted or evicted since."""
        since = sequence.decoding_since
        return since >= 0 and self._clock - since == (
            sequence.work.output_tokens - sequence.generated
        )

    def _preempt(self, victim: Sequence) -> None:
        """Take everything from it, and requeue it with all it has generated."""
        if victim.decoding_since >= 0:
            victim.generated += self._clock - victim.decoding_since
        self._release(victim)
        victim.target = victim.work.prompt_tokens + victim.generated
        victim.preemptions += 1
        self._preemptions += 1
        self._waiting.push(victim)

    def _skip(self, sequence: Sequence) -> None:
        """Stop decoding it for one step; its blocks stay."""
        context = self._context_of(sequence)
        self._stop_decoding(sequence)
        sequence.generated += context - sequence.computed
        sequence.computed = context
        sequence.blocks = self._blocks_for(context)
        self._skipped.append(sequence)

    def _release(self, sequence: Sequence) -> None:
        """Give back seat and blocks."""
        del self._running[sequence.work.key]
        sequence.running = False
        if sequence.decoding_since >= 0:
            self._blocks_used -= self._blocks_for(self._context_of(sequence))
            self._stop_decoding(sequence)
        else:
            self._blocks_used -= sequence.blocks
            if self._partial is sequence:
                self._partial = None
        sequence.blocks = 0
        sequence.computed = 0

    def _stop_decoding(self, sequence: Sequence) -> None:
        del self._decoding[sequence.work.key]
        phase = (sequence.computed - sequence.decoding_since) % self._limits.block_tokens
        self._phases[phase] -= 1
        self._context_tokens -= self._context_of(sequence)
        sequence.decoding_since = -1

    def _forget(self, sequence: Sequence) -> None:
        self._release(sequence)
        del self._sequences[sequence.work.key]

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._limits.block_tokens)
