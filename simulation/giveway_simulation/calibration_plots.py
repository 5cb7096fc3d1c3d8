"""How does a calibration look? Prompt cost, throughput and latency with the chosen points."""

from collections.abc import Sequence
from pathlib import Path

from giveway_simulation.calibrating import (
    SEATS_SHARE,
    Calibration,
    LoadStep,
    PromptSample,
    SeatsStep,
)
from giveway_simulation.demo_verdict import duration
from giveway_simulation.plots import GIVEWAY_COLOR, GUIDE_COLOR, plot_style, save_plot


def plot_calibration(
    calibration: Calibration,
    prompts: Sequence[PromptSample],
    seats: Sequence[SeatsStep],
    load: Sequence[LoadStep],
    *,
    path: Path,
) -> None:
    """A PNG file of the three curves."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    with plot_style():
        figure = Figure(figsize=(12.5, 4.2), layout="constrained")
        cost, throughput, latency = figure.subplots(1, 3)
        lengths = [sample.prompt_tokens for sample in prompts]
        cost.scatter(
            lengths, [sample.first_token_s for sample in prompts], s=12, color=GIVEWAY_COLOR
        )
        slope, base = calibration.prompt_seconds_per_token, calibration.first_token_base_s
        ends = [0, max(lengths)]
        cost.plot(ends, [base + slope * end for end in ends], color=GUIDE_COLOR, linewidth=1)
        cost.set_title(f"prompt cost: {slope * 1e6:.1f} us a token")
        cost.set_xlabel("prompt tokens, engine idle")
        cost.set_ylabel("time to first token")
        cost.yaxis.set_major_formatter(lambda value, _: duration(value))

        throughput.plot(
            [step.in_flight for step in seats],
            [step.work_per_s for step in seats],
            marker="o",
            markersize=4,
            color=GIVEWAY_COLOR,
        )
        throughput.axhline(
            SEATS_SHARE * calibration.best_work_per_s, color=GUIDE_COLOR, linewidth=1, linestyle=":"
        )
        throughput.axvline(calibration.seats, color=GUIDE_COLOR, linewidth=1)
        throughput.set_title(f"seats: {calibration.seats}")
        throughput.set_xlabel("requests in flight")
        throughput.set_ylabel("work a second (in prompt tokens)")
        throughput.set_ylim(bottom=0)
        throughput.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")

        latency.plot(
            [step.requests_per_s for step in load],
            [step.p95_s for step in load],
            marker="o",
            markersize=4,
            color=GIVEWAY_COLOR,
        )
        if calibration.knee_requests_per_s is None or calibration.knee_p95_s is None:
            latency.set_title("no knee: the load was not high enough")
        else:
            latency.axvline(calibration.knee_requests_per_s, color=GUIDE_COLOR, linewidth=1)
            latency.set_title(
                f"knee: {calibration.knee_requests_per_s:.1f} requests/s, "
                f"p95 {duration(calibration.knee_p95_s)}"
            )
        latency.set_yscale("log")
        latency.set_ylim(
            0.5 * min(each.p95_s for each in load), 2 * max(each.p95_s for each in load)
        )
        latency.yaxis.set_major_formatter(lambda value, _: duration(value))
        latency.yaxis.set_minor_formatter(NullFormatter())
        latency.set_xlabel("interactive requests a second")
        latency.set_ylabel("p95 time to first token")
        save_plot(figure, path)
