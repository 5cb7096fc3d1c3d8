"""`giveway emulate`: an engine emulator that speaks vLLM's HTTP."""

import argparse

from giveway_admission.command_serve import parse_port

from giveway_simulation.engine_pods import DEFAULT_POD, PODS


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Lines as written, and the default of each flag that has one."""

    def _get_help_string(self, action: argparse.Action) -> str:
        has_default = action.default not in (None, argparse.SUPPRESS)
        return f"{action.help} (%(default)s)" if has_default else str(action.help)


DESCRIPTION = """\
An engine that speaks vLLM's HTTP, with the timing of a modelled GPU and words without meaning, for
trying policies without a GPU. Flags that vLLM has too are called as there."""
EPILOG = """\
example:
  giveway emulate --port 8000 --scheduling-policy priority

Exit codes: 0 ended by a signal, 1 the port is taken, 2 wrong use."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.formatter_class = _Formatter
    parser.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1", help="address to listen on"
    )
    parser.add_argument(
        "--port", metavar="PORT", type=parse_port, default=8000, help="0: one that is free"
    )
    parser.add_argument(
        "--model", metavar="NAME", default="emulated", help="the served model's name"
    )
    parser.add_argument(
        "--pod",
        choices=sorted(PODS),
        default=DEFAULT_POD,
        help="whose speed and KV cache are emulated",
    )
    parser.add_argument(
        "--max-num-seqs", metavar="N", type=int, default=256, help="sequences in one step"
    )
    parser.add_argument(
        "--max-num-batched-tokens", metavar="N", type=int, default=1024, help="tokens in one step"
    )
    parser.add_argument(
        "--kv-cache-tokens", metavar="N", type=int, help="instead of the pod's own size"
    )
    parser.add_argument(
        "--block-size", metavar="N", type=int, default=16, help="tokens of a KV block"
    )
    parser.add_argument(
        "--scheduling-policy",
        choices=("fcfs", "priority"),
        default="fcfs",
        help="order of waiting requests; priority is what giveway's own order needs",
    )
    parser.add_argument(
        "--max-model-len",
        metavar="N",
        type=int,
        default=32_768,
        help="most tokens of prompt and output",
    )
    parser.add_argument(
        "--max-num-queued-reqs",
        metavar="N",
        type=int,
        help="more waiting requests than this get 503",
    )
    parser.add_argument(
        "--speed", metavar="RATIO", type=float, default=1.0, help="times faster than the pod"
    )
    parser.add_argument(
        "--output-lengths",
        choices=("full", "random"),
        default="full",
        help="answers as long as max_tokens says, or shorter ones drawn from the seed",
    )
    parser.add_argument(
        "--shutdown-timeout",
        metavar="S",
        type=float,
        default=0.0,
        help="seconds that running answers may still take after SIGTERM",
    )


def run(arguments: argparse.Namespace) -> int:
    import asyncio
    import sys

    import uvloop

    from giveway_simulation.emulator import EmulatorSettings
    from giveway_simulation.emulator_requests import OutputLengths
    from giveway_simulation.engine_model import EngineLimits, SchedulingPolicy

    pod = PODS[arguments.pod]
    try:
        settings = EmulatorSettings(
            model=arguments.model,
            pod=pod,
            limits=EngineLimits(
                max_num_seqs=arguments.max_num_seqs,
                max_num_batched_tokens=arguments.max_num_batched_tokens,
                kv_cache_tokens=arguments.kv_cache_tokens or pod.kv_cache_tokens,
                block_tokens=arguments.block_size,
                scheduling_policy=SchedulingPolicy(arguments.scheduling_policy),
            ),
            max_model_len=arguments.max_model_len,
            speed=arguments.speed,
            max_num_queued_reqs=arguments.max_num_queued_reqs,
            output_lengths=OutputLengths(arguments.output_lengths),
        )
    except ValueError as error:
        print(f"giveway emulate: {error}", file=sys.stderr)
        return 2
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(
            _serve(settings, arguments.host, arguments.port, arguments.shutdown_timeout)
        )


async def _serve(settings: object, host: str, port: int, shutdown_timeout_s: float) -> int:
    import asyncio
    import signal
    import sys

    from giveway_simulation.emulator import Emulator, EmulatorSettings
    from giveway_simulation.load_client import connection_reason

    assert isinstance(settings, EmulatorSettings)
    emulator = Emulator(settings)
    try:
        await emulator.start(host, port)
    except OSError as error:
        print(
            f"giveway emulate: can't listen on {host}:{port}: {connection_reason(error)}. "
            "Choose another with --host and --port (0: one that is free).",
            file=sys.stderr,
        )
        return 1
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    print(f"listening on http://{host}:{emulator.port}", flush=True)
    await stopping.wait()
    await emulator.stop(timeout_s=shutdown_timeout_s)
    lag = emulator.engine.lag()
    print(
        f"{lag.steps} steps ended {lag.mean_s * 1e3:.1f} ms late on average,"
        f" {lag.maximum_s * 1e3:.0f} ms at most",
        file=sys.stderr,
    )
    return 0
