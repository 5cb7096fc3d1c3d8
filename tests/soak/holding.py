"""How much does an object hold, by itself and through all that it refers to?

Counted by walking from it, so that nothing else in the process disturbs the figure: equal states
give equal figures, whatever ran before.
"""

import gc
import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType

_SHARED = (
    *(type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType),
    *(logging.Logger, logging.Handler),  # what tests catch of the log grows
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """All that is reachable, code left out."""

    objects: int
    size_bytes: int


def held_by(*roots: object, without: Iterable[object] = ()) -> Holding:
    """Everything reachable from the roots, each object once; not `without` and through it."""
    left_out = {id(each) for each in without}
    seen = set(left_out)
    left: list[object] = list(roots)
    size_bytes = 0
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, _SHARED):
            continue
        seen.add(id(each))
        size_bytes += sys.getsizeof(each)
        left += gc.get_referents(each)
    return Holding(objects=len(seen) - len(left_out), size_bytes=size_bytes)
