"""Which text has so many tokens, whatever the tokenizer?

A prompt is a row of common English words. How many tokens a word costs, and how many a chat
template adds, is a straight line that two short requests measure
(`load_probing.measure_text_scale`). Every prompt begins with eight random words, so that no prefix
cache can answer for another prompt's work.
"""

import random
from dataclasses import dataclass

_TEXT = """
time year people way day man thing woman life child world school state family student group country
problem hand part place case week company system program question work government number night point
home water room mother area money story fact month lot right study book eye job word business issue
side kind head house service friend father power hour game line
"""
_WORDS = _TEXT.split()

_OPENING_WORDS = 8
_POOL_WORDS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class TextScale:
    """prompt tokens = overhead_tokens + tokens_per_word x words."""

    tokens_per_word: float = 1.0
    """Default: common words are one token each in the byte-pair vocabularies of current models."""
    overhead_tokens: float = 0.0

    def words(self, tokens: int) -> int:
        """How many words make a prompt of `tokens` tokens; at least one."""
        return max(1, round((tokens - self.overhead_tokens) / self.tokens_per_word))

    @classmethod
    def through(cls, one: tuple[int, int], other: tuple[int, int]) -> "TextScale":
        """The line through two measured points (words, tokens); the words must differ."""
        (words, tokens), (more_words, more_tokens) = sorted((one, other))
        if words == more_words or more_tokens <= tokens:
            raise ValueError(f"no line through {one} and {other}")
        slope = (more_tokens - tokens) / (more_words - words)
        return cls(tokens_per_word=slope, overhead_tokens=tokens - slope * words)


class PromptWriter:
    """Writes prompts of a given length; equal seeds write equal prompts."""

    __slots__ = ("_pool", "_random", "_scale")

    def __init__(self, scale: TextScale, *, seed: int) -> None:
        self._scale = scale
        self._random = random.Random(seed)  # noqa: S311 - text of a load test, no secret
        self._pool = self._random.choices(_WORDS, k=_POOL_WORDS)

    def write(self, tokens: int) -> str:
        """A text that is about `tokens` tokens long once in the engine's chat template."""
        return self.write_words(self._scale.words(tokens))

    def write_words(self, words: int) -> str:
        """A text of exactly `words` words, unlike every other from its start."""
        opening = self._random.choices(_WORDS, k=min(words, _OPENING_WORDS))
        rest = words - len(opening)
        copies, left = divmod(rest, _POOL_WORDS)
        return " ".join([*opening, *self._pool * copies, *self._pool[:left]])
