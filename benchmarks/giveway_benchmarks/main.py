"""Compare giveway's speed with other proxies, side by side, and write down what came out.

speed: requests and chunks a second, CPU for each, delays. memory: of requests that wait. crowds:
10,000 waiting clients, twenty-fold overload. report: tables, targets and plots from the rows that
the others wrote. Without a word: all four.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from giveway_benchmarks.crowds import CROWDS, measure_crowds
from giveway_benchmarks.load_program import BUILD
from giveway_benchmarks.measuring import measure_speed
from giveway_benchmarks.memory import HELD_LOADS, measure_memory
from giveway_benchmarks.proxies import Kind
from giveway_benchmarks.reports import publish
from giveway_benchmarks.results import ResultRow, append, read
from giveway_benchmarks.rivals import KINDS
from giveway_benchmarks.scenarios import SCENARIOS
from giveway_benchmarks.tables import all_tables
from giveway_benchmarks.targets import verdicts

RESULTS = BUILD / "results.jsonl"
WORDS = ("speed", "memory", "crowds", "report")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    # As an exit, so that the proxies that were started end too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    words = options.words or list(WORDS)
    if len(os.sched_getaffinity(0)) < 2:
        print("The load and the proxy need a core each; this machine has one.", file=sys.stderr)
        return 1
    if not options.words:
        options.results.unlink(missing_ok=True)
    rows: list[ResultRow] = []
    for row in _measure(words, options):
        append(options.results, [row])
        rows.append(row)
    if "report" in words:
        rows = read([options.results])
    if options.publish:
        publish(rows)
    print(all_tables(rows))
    for verdict in verdicts(rows):
        if verdict.measured is not None:
            print(f"{verdict.what} ({verdict.bound}): {verdict.measured:.3g}, {verdict.word}")
    failed = [row for row in rows if row.problems]
    for row in failed:
        print(f"FAILED: {row}", file=sys.stderr)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="giveway_benchmarks", description=__doc__)
    parser.add_argument("words", nargs="*", choices=WORDS, help="what to do (all)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (5)")
    parser.add_argument("--seed", type=int, default=1, help="of the order in each round (1)")
    parser.add_argument("--proxies", default=",".join(KINDS), help="which, with commas (all)")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="which (all)")
    parser.add_argument("--held", default=",".join(HELD_LOADS), help="which (all)")
    parser.add_argument("--crowds", default=",".join(CROWDS), help="which (all)")
    parser.add_argument("--speed", type=float, default=1.0, help="windows' length, as a factor")
    parser.add_argument("--realtime", action="store_true", help="before all else (needs root)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="rows (in .run)")
    parser.add_argument("--publish", action="store_true", help="write benchmarks/README.md anew")
    return parser


def _measure(words: Sequence[str], options: argparse.Namespace) -> Iterator[ResultRow]:
    kinds = _available(options.proxies.split(","))
    if "speed" in words:
        yield from measure_speed(
            kinds,
            options.scenarios.split(","),
            rounds=options.rounds,
            seed=options.seed,
            speed=options.speed,
            realtime=options.realtime,
        )
    if "memory" in words:
        yield from measure_memory(
            kinds,
            options.held.split(","),
            round_=str(options.seed),
            realtime=options.realtime,
        )
    if "crowds" in words:
        yield from measure_crowds(
            options.crowds.split(","),
            round_=str(options.seed),
            speed=options.speed,
            realtime=options.realtime,
        )


def _available(names: Sequence[str]) -> list[Kind]:
    """Those that are installed; of the others it is said loudly how to get them."""
    found = []
    for name in names:
        hint = KINDS[name].missing()
        if hint is None:
            found.append(KINDS[name])
        else:
            print(f"LEFT OUT: {name} is not installed. To get it: {hint}", file=sys.stderr)
    return found
