"""`giveway calibrate`: find by a load test which numbers a policy needs for an engine (Y10)."""

import argparse
import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from giveway_simulation.engine_commands import (
    INTERRUPTED,
    add_engine_arguments,
    ended_by_sigterm,
    explain_missing,
)

if TYPE_CHECKING:
    from giveway_simulation.calibrating import Calibration
    from giveway_simulation.calibration_running import Measurements
    from giveway_simulation.calibration_runs import Progress


_HEADER = """\
# Measured by giveway calibrate on {model}. A whole policy, with the built-in classes; for a policy
# of your own take `concurrency` and `scheduling` from here. promptGateTokens is not measured: about
# four times the engine's --max-num-batched-tokens.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options; the defaults take about three minutes."""
    parser.description = (
        "Load an engine that does nothing else, step by step, for about three minutes, and print\n"
        "an SLOPolicy with what was found: seats, prompt cost, thresholds of InteractiveFirst.\n"
        "The policy goes to standard output, the progress to standard error."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "example:\n"
        "  giveway calibrate --upstream http://127.0.0.1:8000 > policy.yaml\n"
        "  giveway serve --upstream http://127.0.0.1:8000 --policy policy.yaml\n\n"
        "Exit codes: 0 printed, 1 the engine failed, 2 wrong use, 130 interrupted."
    )
    add_engine_arguments(parser, upstream="the engine", required=True)
    parser.add_argument(
        "--max-prompt-tokens",
        metavar="N",
        type=int,
        default=8192,
        help="longest prompt sent (8192)",
    )
    parser.add_argument(
        "--max-tokens", metavar="N", type=int, default=512, help="longest answer asked for (512)"
    )
    parser.add_argument(
        "--step-seconds",
        metavar="S",
        type=float,
        default=8.0,
        help="length of a step of the load (8)",
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, default=1, help="of the lengths and arrivals (1)"
    )
    parser.add_argument("--plot", type=Path, metavar="PNG", help="also plot the curves")
    parser.add_argument(
        "-o",
        "--output",
        choices=("yaml", "json"),
        default="yaml",
        help="how the result is written (yaml)",
    )


def run(arguments: argparse.Namespace) -> int:
    """0: printed. 1: the engine failed or gave no usable figures. 2: wrong use. 130: Ctrl-C."""
    needed = ("rich",) if arguments.plot is None else ("rich", "matplotlib")
    missing = explain_missing("giveway calibrate", needed)
    if missing is not None:
        print(missing, file=sys.stderr)
        return 2
    if arguments.step_seconds <= 0 or arguments.max_tokens < 2 or arguments.max_prompt_tokens < 16:
        print(
            "giveway calibrate: --step-seconds has to be above 0, --max-tokens at least 2, "
            "--max-prompt-tokens at least 16",
            file=sys.stderr,
        )
        return 2
    from giveway_simulation.calibrating import CalibrationError
    from giveway_simulation.load_client import TargetError
    from giveway_simulation.load_probing import EngineProbeError

    try:
        return _run(arguments)
    except TargetError as error:
        print(f"giveway calibrate: {error}", file=sys.stderr)
        return 2
    except (CalibrationError, EngineProbeError) as error:
        print(f"giveway calibrate: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _run(arguments: argparse.Namespace) -> int:
    import uvloop

    from giveway_simulation.calibrating import calibrate
    from giveway_simulation.demo_display import PlainView, TerminalView

    view = TerminalView() if sys.stderr.isatty() else PlainView()
    with view, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        measurements = runner.run(ended_by_sigterm(_measured(arguments, view)))
    calibration = calibrate(measurements.prompts, measurements.seats, measurements.load)
    if arguments.plot is not None:
        from giveway_simulation.calibration_plots import plot_calibration

        plot_calibration(
            calibration,
            measurements.prompts,
            measurements.seats,
            measurements.load,
            path=arguments.plot,
        )
    for line in _findings(calibration, measurements, plot=arguments.plot):
        print(line, file=sys.stderr)
    if arguments.output == "json":
        print(json.dumps({"found": asdict(calibration), **asdict(measurements)}, indent=2))
    else:
        print(_policy_text(calibration, measurements), end="")
    return 0


async def _measured(arguments: argparse.Namespace, progress: "Progress") -> "Measurements":
    from giveway_simulation.calibration_running import measure_all
    from giveway_simulation.calibration_runs import Pace
    from giveway_simulation.demo_load import Limits
    from giveway_simulation.load_probing import read_api_key

    return await measure_all(
        arguments.upstream,
        model=arguments.model,
        api_key=read_api_key(arguments.engine_api_key_file),
        limits=Limits(
            prompt_tokens=arguments.max_prompt_tokens, output_tokens=arguments.max_tokens
        ),
        seed=arguments.seed,
        pace=Pace(step_s=arguments.step_seconds, load_step_s=arguments.step_seconds * 1.25),
        progress=progress,
    )


def _findings(
    calibration: "Calibration", measurements: "Measurements", *, plot: Path | None
) -> list[str]:
    """What a person reads while the policy goes into a file."""
    tried = max(step.in_flight for step in measurements.seats)
    cost_us = calibration.prompt_seconds_per_token * 1e6
    base_ms = calibration.first_token_base_s * 1000
    lines = [
        f"seats: {calibration.seats} (up to {tried} requests in flight were tried)",
        f"prompt cost: {cost_us:.1f} us a token, {base_ms:.0f} ms besides",
    ]
    if calibration.knee_requests_per_s is None or calibration.knee_p95_s is None:
        lines.append("knee: none found, the thresholds of InteractiveFirst keep their defaults")
    else:
        rate, p95_ms = calibration.knee_requests_per_s, calibration.knee_p95_s * 1000
        lines.append(
            f"knee: {rate:.1f} interactive requests/s, p95 time to first token {p95_ms:.0f} ms"
        )
    lines.extend(f"note: {note}" for note in measurements.notes)
    if plot is not None:
        lines.append(f"plot: {plot}")
    return lines


def _policy_text(calibration: "Calibration", measurements: "Measurements") -> str:
    import yaml

    from giveway_simulation.calibrating import policy_of

    body = yaml.safe_dump(policy_of(calibration), sort_keys=False, allow_unicode=True)
    return _HEADER.format(model=measurements.model) + body
