"""How hard is interactive traffic pressing? (Y3-Y6)

    pressure = max(min(1, rate / rate threshold), min(1, p95 / latency threshold))
    smoothed += smoothing x (pressure - smoothed)                    at each look
    batch seats = max(minimum, round(maximum - (maximum - minimum) x smoothed))

over a sliding window of interactive requests. Changed from the published design:
- Latency is time to first token (end to end where none can be seen, or where that is asked for):
  the end-to-end time of finished requests hides a bad first token behind a long answer (mend 8).
- Requests without their first token count in the 95th percentile with their age, so that a stalled
  engine, which finishes nothing, presses harder and harder instead of not at all (mend 8). One that
  gave up counts with the age at which it did, if that was over the threshold.
- An empty window says nothing. The pressure then fades over about one window, so that batch does
  not get all seats at once just before the next burst (mend 9).

Looks stand on a fixed grid of times, so that one long step equals many short ones.
"""

import math
from collections import OrderedDict, deque
from itertools import islice

from giveway_scheduler.entries import Entry
from giveway_scheduler.requests import RequestKey
from giveway_scheduler.settings import (
    Concurrency,
    LatencySignal,
    RateSignal,
    Yielding,
)

LOOK_S = 0.25
"""Time between two looks. A guess, well below the window and above the life of a burst's first
requests; the source looks at every pick, which ties smoothing to the request rate."""
MOST_LOOKS = 400
"""Looks made up for after a long sleep; what was before them has faded."""
MOST_LATENCIES = 2048
"""Latencies kept of one window: the newest. A 95th percentile needs no more."""
TAIL = 0.05
NONE_LEFT = 1e-3
"""A pressure that fades below this is 0: no seat depends on it."""


def batch_seats(concurrency: Concurrency, pressure_ratio: float) -> int:
    """Y3: seats of batch under this pressure."""
    span = concurrency.batch_maximum - concurrency.batch_minimum
    seats = math.floor(concurrency.batch_maximum - span * pressure_ratio + 0.5)
    return max(concurrency.batch_minimum, seats)


class Pressure:
    """The smoothed pressure, as of the last look."""

    def __init__(self, yielding: Yielding, *, now_s: float) -> None:
        self._yielding = yielding
        self.next_look_s = now_s + LOOK_S
        self._counted = 0
        """Requests since the last look."""
        self._counts: deque[tuple[float, int]] = deque()
        """(time of the look, requests counted at it), none of them 0."""
        self._latencies: deque[tuple[float, float]] = deque(maxlen=MOST_LATENCIES)
        """(time, latency)."""
        self._unanswered: OrderedDict[RequestKey, float] = OrderedDict()
        """When those came that have no latency yet, in order of arrival."""
        self.smoothed_ratio = 0.0

    def configure(self, yielding: Yielding) -> None:
        """Follow new settings; what was observed stays."""
        self._yielding = yielding

    def arrived(self, entry: Entry, *, now_s: float) -> None:
        """An interactive request was taken."""
        self._unanswered[entry.key] = now_s
        if self._yielding.rate is RateSignal.ARRIVED:
            self._counted += 1

    def answered(self, entry: Entry, *, now_s: float) -> None:
        """An interactive request showed its first token."""
        if self._yielding.latency is LatencySignal.FIRST_TOKEN:
            self._observe(entry, now_s)

    def ended(self, entry: Entry, *, now_s: float, is_finished: bool) -> None:
        """An interactive request is gone."""
        if is_finished:
            if self._yielding.rate is RateSignal.FINISHED:
                self._counted += 1
            self._observe(entry, now_s)
        elif now_s - entry.offered_s >= self._yielding.latency_threshold_s:
            self._observe(entry, now_s)
        else:
            self._unanswered.pop(entry.key, None)

    def advance(self, *, now_s: float) -> bool:
        """Make the looks that are due; True if there were any."""
        if now_s < self.next_look_s:
            return False
        due = math.floor((now_s - self.next_look_s) / LOOK_S) + 1
        self.next_look_s += max(0, due - MOST_LOOKS) * LOOK_S
        while self.next_look_s <= now_s:
            self._look(self.next_look_s)
            self.next_look_s += LOOK_S
        return True

    def next_event_s(self) -> float:
        """When the pressure may change. Infinite: it is 0 and nothing is in the window."""
        if self.smoothed_ratio or self._counted or self._counts or self._unanswered:
            return self.next_look_s
        return math.inf

    def _observe(self, entry: Entry, now_s: float) -> None:
        """The entry has its latency now, if it had none before."""
        if self._unanswered.pop(entry.key, None) is not None:
            self._latencies.append((now_s, now_s - entry.offered_s))

    def _look(self, at_s: float) -> None:
        window_s = self._yielding.window_s
        if self._counted:
            self._counts.append((at_s, self._counted))
            self._counted = 0
        since_s = at_s - window_s
        while self._counts and self._counts[0][0] <= since_s:
            self._counts.popleft()
        while self._latencies and self._latencies[0][0] <= since_s:
            self._latencies.popleft()
        if self._counts or self._latencies or self._unanswered:
            change = self._measure(at_s) - self.smoothed_ratio
            self.smoothed_ratio += self._yielding.smoothing * change
        else:
            self.smoothed_ratio *= math.exp(-LOOK_S / window_s)
            if self.smoothed_ratio < NONE_LEFT:
                self.smoothed_ratio = 0.0

    def _measure(self, at_s: float) -> float:
        """Y4, of the window that ends at `at_s`."""
        yielding = self._yielding
        per_s = sum(count for _, count in self._counts) / yielding.window_s
        return max(
            min(1.0, per_s / yielding.requests_per_s_threshold),
            min(1.0, self._p95_s(at_s) / yielding.latency_threshold_s),
        )

    def _p95_s(self, at_s: float) -> float:
        """95th percentile of latencies and ages together.

        Only the largest twentieth is looked at: the oldest of the unanswered are its ages.
        """
        total = len(self._latencies) + len(self._unanswered)
        if not total:
            return 0.0
        rank = int(TAIL * total)
        slowest = sorted((latency_s for _, latency_s in self._latencies), reverse=True)
        ages = [at_s - since_s for since_s in islice(self._unanswered.values(), rank + 1)]
        return sorted(slowest[: rank + 1] + ages, reverse=True)[rank]
