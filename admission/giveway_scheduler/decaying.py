"""How much of something was there lately?

A sum whose parts lose half their weight every half-life:
`value(t) = sum of amount x 2^-(age / half-life)`. It needs no window and no list, and its decay
over any time is closed, so that one long step equals many short ones.
"""

LN_2 = 0.6931471805599453


class DecayedShare:
    """The part of some flow in a whole that it belongs to, both decaying alike.

    So the share changes with what is added and never by itself.
    """

    __slots__ = ("_part", "_updated_s", "_whole", "half_life_s")

    def __init__(self, *, half_life_s: float, now_s: float) -> None:
        self.half_life_s = half_life_s
        self._part = 0.0
        self._whole = 0.0
        self._updated_s = now_s

    def add(self, amount: float, is_part: bool, now_s: float) -> None:
        """Count `amount` now; below 0 it corrects what was counted before."""
        if now_s > self._updated_s:
            left = 2.0 ** ((self._updated_s - now_s) / self.half_life_s)
            self._part *= left
            self._whole *= left
            self._updated_s = now_s
        if is_part:
            self._part += amount
            if self._part < 0.0:
                self._part = 0.0
        self._whole += amount
        if self._whole < self._part:
            self._whole = self._part

    def is_below(self, ratio: float) -> bool:
        """Is the part less than this ratio of the whole? False while there was nothing at all."""
        return self._part < ratio * self._whole


class DecayedSum:
    """One decaying sum, never below 0."""

    __slots__ = ("_updated_s", "_value", "half_life_s")

    def __init__(self, *, half_life_s: float, now_s: float) -> None:
        self.half_life_s = half_life_s
        self._value = 0.0
        self._updated_s = now_s

    def at(self, now_s: float) -> float:
        """The sum as of `now_s`."""
        passed_s = now_s - self._updated_s
        if passed_s > 0.0:
            self._value *= 2.0 ** (-passed_s / self.half_life_s)
            self._updated_s = now_s
        return self._value

    def add(self, amount: float, now_s: float) -> None:
        """Count `amount` now; below 0 it corrects what was counted before."""
        value = self.at(now_s) + amount
        if value < 0.0:
            value = 0.0
        self._value = value

    def per_s(self, now_s: float) -> float:
        """The rate of a steady flow that would hold the sum where it is."""
        return self.at(now_s) * LN_2 / self.half_life_s
