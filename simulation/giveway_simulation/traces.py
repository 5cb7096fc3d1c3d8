"""Which requests arrived when, and how long were they? Records of real traffic, read from CSV.

A trace is timing and lengths, never text. Three samples of published traces come with the package
(TRACES.md names source, licence and what was cut); a file of one's own works too. The header names
the columns; these spellings are known, whatever their case and separators:

    arrival   TIMESTAMP, t_s, arrival_s       ISO date and time, or seconds; may be missing
    prompt    ContextTokens, input_tokens, input_length, num_prefill_tokens, Request tokens, ...
    output    GeneratedTokens, output_tokens, output_length, num_decode_tokens, Response tokens, ...
    tenant    client, tenant, user            may be missing

What always holds: rows are in the order of arrival, the first arrives at 0, lengths are at least 1.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path

_ARRIVAL = ("timestamp", "arrivals", "ts", "arrivaltime", "time")
_PROMPT = (
    "contexttokens",
    "prompttokens",
    "inputtokens",
    "inputlength",
    "numprefilltokens",
    "requesttokens",
)
_OUTPUT = (
    "generatedtokens",
    "outputtokens",
    "outputlength",
    "numdecodetokens",
    "responsetokens",
    "completiontokens",
)
_TENANT = ("client", "clientid", "tenant", "user")

MAXIMUM_ROWS = 1_000_000
"""A guess that keeps a mistaken file from filling the memory; published weeks are cut by users."""


class TraceError(Exception):
    """A trace can't be read; whoever chose the file must act. The text names file and line."""


class Sample(StrEnum):
    """The traces that come with the package."""

    CHAT = "chat"
    """Azure 2023 conversation: 30 minutes of arrivals, prompts of about 1,100 tokens."""
    CODE = "code"
    """Azure 2023 code completion: 30 minutes of arrivals in bursts, long prompts, short answers."""
    BATCH = "batch"
    """arXiv summaries: lengths alone, prompts of about 2,600 tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One request that somebody once sent."""

    arrival_s: float | None
    """Seconds after the first row. None: the trace records no times."""
    prompt_tokens: int
    output_tokens: int
    tenant: str | None = None
    """None: the trace names no clients."""


@cache
def load_sample(sample: Sample) -> tuple[TraceRow, ...]:
    """One of the traces that come with the package."""
    name = f"trace_sample_{sample.value}.csv"
    text = resources.files("giveway_simulation").joinpath(name).read_text(encoding="utf-8")
    return parse_trace(text.splitlines(), name=name)


def read_trace(path: Path) -> tuple[TraceRow, ...]:
    """A CSV file with a header; `TraceError` says what is wrong with it and where."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return parse_trace(file, name=str(path))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: is not UTF-8 text; a trace is a CSV file") from error


def parse_trace(lines: Iterable[str], *, name: str) -> tuple[TraceRow, ...]:
    """The rows of a CSV text in order of arrival; `name` is what errors call the file."""
    reader = csv.reader(lines)
    try:
        header = next(reader, None)
        if header is None:
            raise TraceError(f"{name}: is empty; the first line must name the columns")
        columns = _Columns.of(header, name=name)
        rows: list[TraceRow] = []
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(rows) == MAXIMUM_ROWS:
                raise TraceError(f"{name}: has more than {MAXIMUM_ROWS} rows; cut it first")
            rows.append(columns.row(cells, where=f"{name}:{reader.line_num}"))
    except csv.Error as error:
        raise TraceError(f"{name}:{reader.line_num}: is not CSV: {error}") from error
    if not rows:
        raise TraceError(f"{name}: has a header and no rows")
    return _from_zero(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Where in a row each value stands."""

    prompt: int
    output: int
    arrival: int | None
    tenant: int | None

    @classmethod
    def of(cls, header: Sequence[str], *, name: str) -> "_Columns":
        spelled = ["".join(c for c in cell.lower() if c.isalnum()) for cell in header]

        def find(known: tuple[str, ...]) -> int | None:
            return next((i for i, cell in enumerate(spelled) if cell in known), None)

        prompt, output = find(_PROMPT), find(_OUTPUT)
        if prompt is None or output is None:
            missing = "prompt" if prompt is None else "output"
            known = ", ".join(_PROMPT if prompt is None else _OUTPUT)
            raise TraceError(
                f"{name}:1: no column for the {missing} length in {', '.join(header)!r}; "
                f"known names: {known} (case, spaces and underscores do not matter)"
            )
        return cls(prompt=prompt, output=output, arrival=find(_ARRIVAL), tenant=find(_TENANT))

    def row(self, cells: Sequence[str], *, where: str) -> TraceRow:
        def cell(index: int) -> str:
            if index >= len(cells):
                raise TraceError(f"{where}: has {len(cells)} columns, column {index + 1} is needed")
            return cells[index].strip()

        tenant = None if self.tenant is None else cell(self.tenant) or None
        return TraceRow(
            arrival_s=None if self.arrival is None else _seconds(cell(self.arrival), where=where),
            prompt_tokens=_tokens(cell(self.prompt), where=where),
            output_tokens=_tokens(cell(self.output), where=where),
            tenant=tenant,
        )


def _tokens(text: str, *, where: str) -> int:
    try:
        number = float(text)
    except ValueError:
        raise TraceError(f"{where}: {text!r} is not a number of tokens") from None
    if not math.isfinite(number) or number < 0 or number != int(number):
        raise TraceError(f"{where}: {text!r} is not a number of tokens")
    return max(1, int(number))


def _seconds(text: str, *, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        try:
            return datetime.fromisoformat(_at_most_microseconds(text)).timestamp()
        except ValueError:
            raise TraceError(
                f"{where}: {text!r} is neither seconds nor an ISO date and time"
            ) from None
    if not math.isfinite(number):
        raise TraceError(f"{where}: {text!r} is not a time")
    return number


def _at_most_microseconds(text: str) -> str:
    """Azure writes seven digits after the point; Python's parser knows six."""
    whole, point, fraction = text.partition(".")
    digits = len(fraction) - len(fraction.lstrip("0123456789"))
    return f"{whole}{point}{fraction[: min(digits, 6)]}{fraction[digits:]}"


def _from_zero(rows: list[TraceRow]) -> tuple[TraceRow, ...]:
    timed = [(row.arrival_s, row) for row in rows if row.arrival_s is not None]
    if not timed:
        return tuple(rows)
    start_s = min(arrival_s for arrival_s, _ in timed)
    timed.sort(key=lambda pair: pair[0])
    return tuple(
        TraceRow(
            arrival_s=arrival_s - start_s,
            prompt_tokens=row.prompt_tokens,
            output_tokens=row.output_tokens,
            tenant=row.tenant,
        )
        for arrival_s, row in timed
    )
