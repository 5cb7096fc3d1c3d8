"""What was measured: rows, kept as lines of JSON so that several runs add up."""

from collections.abc import Sequence
from pathlib import Path

import msgspec


class SpeedRow(msgspec.Struct, frozen=True, kw_only=True, tag="speed"):
    """One proxy, one scenario, one round."""

    round: str
    scenario: str
    proxy: str
    units_per_s: float
    """Requests or chunks."""
    cpu_us: float
    """Of the proxy, for each of them."""
    p50_us: float
    p99_us: float
    load_share: float
    """Of its core, by the load program: near 1 it is itself the limit."""
    problems: dict[str, int]
    """Of any kind. A row that has some is a failure, whatever its figures."""


class MemoryRow(msgspec.Struct, frozen=True, kw_only=True, tag="memory"):
    """How much memory held requests take."""

    round: str
    proxy: str
    load: str
    requests: int
    in_engine: int
    """The others wait in the proxy."""
    idle_bytes: int
    held_bytes: int
    """Above idle."""
    problems: dict[str, int]


class CrowdRow(msgspec.Struct, frozen=True, kw_only=True, tag="crowd"):
    """One group of clients while many others are there."""

    round: str
    crowd: str
    group: str
    answers_per_s: float
    tokens_per_s: float
    all_answers: int
    refused: int
    """In the window."""
    refusals_per_s: float
    p50_us: float
    p99_us: float
    refusal_p50_us: float
    refusal_p99_us: float
    cpu_share: float
    """Of the proxy, for all groups together."""
    pss_bytes: int
    problems: dict[str, int]
    """Without refusals, where these are wanted."""


ResultRow = SpeedRow | MemoryRow | CrowdRow


def append(path: Path, rows: Sequence[ResultRow]) -> None:
    """Add rows to a file, which need not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)


def read(paths: Sequence[Path]) -> list[ResultRow]:
    """All rows of the files."""
    return [
        msgspec.json.decode(line, type=ResultRow)
        for path in paths
        for line in path.read_bytes().splitlines()
    ]
