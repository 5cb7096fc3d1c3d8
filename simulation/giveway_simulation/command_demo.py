"""`giveway demo`: the same load on an engine, directly and through giveway, as a live table."""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from giveway_simulation.engine_commands import (
    INTERRUPTED,
    add_engine_arguments,
    ended_by_sigterm,
    explain_missing,
)

if TYPE_CHECKING:
    from giveway_policy.resources import SLOPolicySpec

    from giveway_simulation.demo import DemoResult
    from giveway_simulation.demo_stage import DemoSettings

DEMO_POLICY = "demo_policy.yaml"
DEFAULT_PLOT = Path(".run/giveway-demo.png")
DEFAULT_SEED = 4
"""A slice in which all kinds of traffic come all through; many slices of the code trace are empty
for half a minute. The chat figures hardly depend on it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options; every default shows the published comparison on an emulated H100."""
    parser.description = (
        "Send the same load to an engine, directly and through giveway, and show both as a live\n"
        "table. Without --upstream two equal engines are emulated, and it takes a minute."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "examples:\n"
        "  giveway demo\n"
        "  giveway demo --load 2 --seconds 90\n"
        "  giveway demo --upstream http://127.0.0.1:8000 --model my-model --policy policy.yaml\n\n"
        "Exit codes: 0 shown, 1 an engine, policy or child process failed, 2 wrong use,\n"
        "130 interrupted."
    )
    add_engine_arguments(parser, upstream="a real engine instead of emulated ones", required=False)
    parser.add_argument(
        "--max-tokens",
        metavar="N",
        type=_positive_int,
        default=2048,
        help="longest answer asked for (2048; with --upstream)",
    )
    parser.add_argument(
        "--max-prompt-tokens",
        metavar="N",
        type=_positive_int,
        default=16384,
        help="longest prompt sent (16384; with --upstream)",
    )
    parser.add_argument(
        "--seconds", metavar="S", type=_positive, default=60.0, help="length of a run (60)"
    )
    parser.add_argument(
        "--load",
        metavar="RATIO",
        type=_positive,
        default=1.2,
        help="multiple of what the engine can do (1.2)",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=int,
        default=DEFAULT_SEED,
        help=f"which slice of the traces ({DEFAULT_SEED})",
    )
    parser.add_argument(
        "--policy",
        type=Path,
        metavar="FILE",
        help="policy of giveway (default: demo_policy.yaml of the package for emulated engines, "
        "the built-in one with --upstream)",
    )
    parser.add_argument(
        "--trace", type=Path, metavar="CSV", help="times and lengths of the chat traffic"
    )
    parser.add_argument(
        "--pod", metavar="POD", default=None, help="emulated GPU and model, see giveway emulate"
    )
    parser.add_argument(
        "--in-turn",
        action="store_true",
        help="one run after the other on one emulated engine, instead of two engines at once",
    )
    parser.add_argument(
        "--plot",
        type=Path,
        default=DEFAULT_PLOT,
        metavar="PNG",
        help=f"where the plot goes ({DEFAULT_PLOT})",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="how the result is written (table)",
    )


def run(arguments: argparse.Namespace) -> int:
    """0: shown. 1: an engine, a policy or a child process failed. 2: wrong use. 130: Ctrl-C."""
    missing = explain_missing("giveway demo", ("matplotlib", "rich"))
    if missing is not None:
        print(missing, file=sys.stderr)
        return 2
    from giveway_simulation.child_processes import ChildError
    from giveway_simulation.demo_load import DemoLoadError
    from giveway_simulation.load_client import TargetError
    from giveway_simulation.load_probing import EngineProbeError
    from giveway_simulation.traces import TraceError

    try:
        return _run(arguments)
    except (TraceError, TargetError, DemoLoadError, _UsageError) as error:
        print(f"giveway demo: {error}", file=sys.stderr)
        return 2
    except (ChildError, EngineProbeError) as error:
        print(f"giveway demo: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


class _UsageError(Exception):
    """The options contradict each other or the policy."""


def _run(arguments: argparse.Namespace) -> int:
    import uvloop

    from giveway_simulation.demo import run_demo
    from giveway_simulation.demo_display import PlainView, TerminalView, print_result
    from giveway_simulation.plots import plot_demo

    settings = _settings(arguments)
    view = TerminalView() if sys.stderr.isatty() else PlainView()
    with view, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(ended_by_sigterm(run_demo(settings, view)))
    plot_demo(result, arguments.plot)
    if arguments.output == "json":
        print(json.dumps(_as_json(result, plot=arguments.plot), indent=2))
    else:
        print_result(result, plot=str(arguments.plot))
    return 0


def _settings(arguments: argparse.Namespace) -> "DemoSettings":
    from giveway_policy.defaults import default_spec

    from giveway_simulation.demo_load import Limits
    from giveway_simulation.demo_stage import DemoSettings, Emulated, Upstream
    from giveway_simulation.engine_pods import DEFAULT_POD, PODS
    from giveway_simulation.traces import read_trace

    engine: Emulated | Upstream
    if arguments.upstream is not None:
        if arguments.pod is not None or arguments.in_turn:
            raise _UsageError("--pod and --in-turn are for emulated engines, not for --upstream")
        engine = Upstream(
            url=arguments.upstream,
            model=arguments.model,
            api_key_file=arguments.engine_api_key_file,
            limits=Limits(
                prompt_tokens=arguments.max_prompt_tokens, output_tokens=arguments.max_tokens
            ),
        )
    else:
        pod = arguments.pod or DEFAULT_POD
        if pod not in PODS:
            raise _UsageError(f"no pod is called {pod}; known: {', '.join(PODS)}")
        engine = Emulated(pod=pod)
    policy = arguments.policy
    if policy is None and isinstance(engine, Emulated):
        policy = Path(__file__).with_name(DEMO_POLICY)
    return DemoSettings(
        engine=engine,
        spec=default_spec() if policy is None else _policy_spec(policy),
        policy=policy,
        window_s=arguments.seconds,
        load=arguments.load,
        seed=arguments.seed,
        in_turn=arguments.in_turn,
        chat_trace=None if arguments.trace is None else read_trace(arguments.trace),
    )


def _policy_spec(path: Path) -> "SLOPolicySpec":
    """The policy that a proxy would put in force for this file or folder."""
    from giveway_policy.compiling import compile_policies
    from giveway_policy.loading import load_path

    loading = load_path(path)
    compilation = compile_policies(loading.policies, loading.tenants)
    if not compilation.documents:
        faults = [str(fault) for fault in [*loading.faults, *compilation.faults]]
        raise _UsageError("\n".join(faults) or f"{path} holds no SLOPolicy")
    return compilation.documents[0].spec


def _as_json(result: "DemoResult", *, plot: Path) -> dict[str, object]:
    from dataclasses import asdict

    picture = result.picture
    return {
        "window_s": picture.window_s,
        "requests": result.requests,
        "work_per_s": result.work_per_s,
        "classes": [asdict(each) for each in picture.classes],
        "direct": asdict(picture.figures[0]),
        "giveway": asdict(picture.figures[1]),
        "won": result.verdict.won.value,
        "sentence": result.verdict.sentence,
        "notes": list(result.notes),
        "plot": str(plot),
    }


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def _positive_int(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number
