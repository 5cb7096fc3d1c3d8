"""vLLM's scheduling rules once more, sequence by sequence and token by token: slow and plain.

The oracle for `giveway_simulation.engine_model`, which reaches the same by calendars and tables.
"""

from dataclasses import dataclass

from giveway_simulation.engine_model import EngineLimits, SchedulingPolicy, Work


@dataclass(slots=True)
class _Live:
    work: Work
    arrival: int
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    preemptions: int = 0

    @property
    def target(self) -> int:
        return self.work.prompt_tokens + self.generated

    @property
    def order(self) -> tuple[int, int]:
        return (self.work.priority, self.arrival)


class ReferenceEngine:
    """One call of `step` is one step; returns what was evicted, emitted and finished in it."""

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self.waiting: list[_Live] = []
        self.running: list[_Live] = []
        self._arrivals = 0

    def submit(self, work: Work) -> None:
        self._arrivals += 1
        self.waiting.append(_Live(work, self._arrivals))

    def abort(self, key: int) -> None:
        self.waiting = [live for live in self.waiting if live.work.key != key]
        self.running = [live for live in self.running if live.work.key != key]

    @property
    def used_blocks(self) -> int:
        return sum(live.blocks for live in self.running)

    def step(self) -> tuple[set[int], set[int], set[int]]:
        budget = self.limits.max_num_batched_tokens
        preempted: set[int] = set()
        planned: dict[int, int] = {}
        at = 0
        while at < len(self.running) and budget > 0:
            live = self.running[at]
            tokens = min(live.target - live.computed, budget)
            while not self._fits(live, tokens):
                victim = self._victim()
                place = self.running.index(victim)
                self.running.remove(victim)
                if place < at:
                    at -= 1
                    budget += planned.pop(victim.work.key, 0)
                self._requeue(victim)
                preempted.add(victim.work.key)
                if victim is live:
                    break
            if live.work.key in preempted:
                break
            self._allocate(live, tokens)
            planned[live.work.key] = tokens
            budget -= tokens
            at += 1
        if not preempted:
            self._admit(budget, planned)
        return (preempted, *self._compute(planned))

    def _admit(self, budget: int, planned: dict[int, int]) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            if self.limits.scheduling_policy is SchedulingPolicy.PRIORITY:
                live = min(self.waiting, key=lambda live: live.order)
            else:
                live = self.waiting[0]
            if not self._fits(live, live.target):
                return
            self.waiting.remove(live)
            self.running.append(live)
            tokens = min(live.target, budget)
            self._allocate(live, tokens)
            planned[live.work.key] = tokens
            budget -= tokens

    def _compute(self, planned: dict[int, int]) -> tuple[set[int], set[int]]:
        emitted: set[int] = set()
        finished: set[int] = set()
        for live in list(self.running):
            live.computed += planned.get(live.work.key, 0)
            if live.work.key in planned and live.computed == live.target:
                live.generated += 1
                emitted.add(live.work.key)
                if live.generated == live.work.output_tokens:
                    finished.add(live.work.key)
                    self.running.remove(live)
        return emitted, finished

    def _victim(self) -> _Live:
        if self.limits.scheduling_policy is SchedulingPolicy.PRIORITY:
            return max(self.running, key=lambda live: live.order)
        return self.running[-1]

    def _requeue(self, live: _Live) -> None:
        live.computed = live.blocks = 0
        live.preemptions += 1
        self.waiting.insert(0, live)

    def _blocks(self, live: _Live, tokens: int) -> int:
        return -(-(live.computed + tokens) // self.limits.block_tokens)

    def _fits(self, live: _Live, tokens: int) -> bool:
        more = self._blocks(live, tokens) - live.blocks
        return more <= self.limits.kv_blocks - self.used_blocks

    def _allocate(self, live: _Live, tokens: int) -> None:
        live.blocks = max(live.blocks, self._blocks(live, tokens))
