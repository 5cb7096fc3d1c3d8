"""What does the engine model know of one sequence, and which of those that wait goes first?

Both queues have the same four operations; `peek` names the next and leaves it where it is. An
evicted sequence is pushed again: under fcfs it goes to the front, under priority to its old place.
"""

import heapq
from collections import OrderedDict

from giveway_simulation.engine_work import Work


class Sequence:
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


class FcfsQueue:
    """First come, first served; an evicted sequence goes back to the front."""

    def __init__(self) -> None:
        self._sequences: OrderedDict[int, Sequence] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sequences)

    def push(self, sequence: Sequence) -> None:
        self._sequences[sequence.work.key] = sequence
        if sequence.preemptions:
            self._sequences.move_to_end(sequence.work.key, last=False)

    def peek(self) -> Sequence:
        return next(iter(self._sequences.values()))

    def remove(self, key: int) -> None:
        del self._sequences[key]


class PriorityQueue:
    """Lowest (priority, arrival) first. A removed entry stays in the heap until it comes up."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int]] = []
        self._sequences: dict[int, Sequence] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def push(self, sequence: Sequence) -> None:
        self._sequences[sequence.work.key] = sequence
        heapq.heappush(self._heap, (*sequence.order, sequence.work.key))

    def peek(self) -> Sequence:
        while True:
            sequence = self._sequences.get(self._heap[0][2])
            if sequence is not None and sequence.order == self._heap[0][:2]:
                return sequence
            heapq.heappop(self._heap)

    def remove(self, key: int) -> None:
        del self._sequences[key]
