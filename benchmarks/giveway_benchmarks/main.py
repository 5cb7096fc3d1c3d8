"""`python -m giveway_benchmarks`: what can be said on the command line?"""

import argparse
import contextlib
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from giveway_benchmarks.load_program import LoadProgram
from giveway_benchmarks.measuring import DIRECT, Bench, Row
from giveway_benchmarks.processes import free_port, pinned
from giveway_benchmarks.proxies import KINDS, Proxy
from giveway_benchmarks.scenarios import SCENARIOS
from giveway_benchmarks.tables import table

LOAD_CORE, PROXY_CORE = 0, 1
SEATS = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if len(os.sched_getaffinity(0)) < 2:
        print("The load and the proxy need a core each; this machine has one.", file=sys.stderr)
        return 1
    rows = _measure(options)
    print(table(rows))
    failed = [row for row in rows if row.failed]
    for row in failed:
        print(f"FAILED: {row.proxy}, {row.scenario}: {row.problems}", file=sys.stderr)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="giveway_benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (5)")
    parser.add_argument("--seed", type=int, default=1, help="of the order in each round (1)")
    parser.add_argument("--proxies", default=",".join(KINDS), help="which, with commas (all)")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="which (all)")
    parser.add_argument("--speed", type=float, default=1.0, help="windows' length, as a factor")
    parser.add_argument("--realtime", action="store_true", help="before all else (needs root)")
    parser.add_argument("--append", type=Path, help="write the rows there too, as lines of JSON")
    return parser


def _measure(options: argparse.Namespace) -> list[Row]:
    order = random.Random(options.seed)
    names = _available(options.proxies.split(","))
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        load = stack.enter_context(LoadProgram(engine_port=free_port(), prefix=pinned(LOAD_CORE)))
        proxies: dict[str, Proxy] = {}
        for name in names:
            proxies[name] = Proxy(
                KINDS[name],
                folder=folder / name,
                engine_port=load.engine_port,
                core=PROXY_CORE,
                seats=SEATS,
            )
            stack.callback(proxies[name].stop)
        for proxy in proxies.values():
            proxy.wait_until_ready()
        bench = Bench(load=load, proxies=proxies, realtime=options.realtime, speed=options.speed)
        for number in range(options.rounds):
            for scenario in _shuffled(options.scenarios.split(","), order):
                for name in _shuffled([DIRECT, *names], order):
                    row = bench.measure(SCENARIOS[scenario], name, number)
                    rows.append(row)
                    _append(options.append, row)
    return rows


def _available(names: Sequence[str]) -> list[str]:
    """Those that are installed; of the others it is said loudly how to get them."""
    found = []
    for name in names:
        hint = KINDS[name].missing()
        if hint is None:
            found.append(name)
        else:
            print(f"LEFT OUT: {name} is not installed. To get it: {hint}", file=sys.stderr)
    return found


def _shuffled(names: Sequence[str], order: random.Random) -> list[str]:
    return order.sample(list(names), len(names))


def _append(path: Path | None, row: Row) -> None:
    if path is not None:
        with path.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
