"""`make demo`: giveway in a cluster, without a node, to look at and to play with.

A real API server and Prometheus, `giveway operate`, two proxies before emulated engines, and a load
under which `standard` misses its objective. Everything is kept in `.demo/` and ends with Ctrl-C.
"""

import argparse
import asyncio
import contextlib
import shutil
import signal
import sys
import time
from typing import Any

from tests.cluster.shared_policies import policy_resource
from tests.support.control_plane import ROOT, ControlPlane, missing_binaries
from tests.support.loads import Load
from tests.support.stages import Stage, open_stage

FOLDER = ROOT / ".demo"
NAMESPACE = "demo"
REPORT_S = 5.0

TENANT = {
    "apiVersion": "giveway.dev/v1alpha1",
    "kind": "TenantPriority",
    "metadata": {"name": "acme"},
    "spec": {"tenant": "acme", "maximumClass": "standard", "weight": 4},
}

INTRODUCTION = """\

Everything runs. In another terminal:

  export KUBECONFIG={kubeconfig}
  kubectl get slop,tprio -n demo
  kubectl explain slop.spec.classes
  kubectl edit slop chat -n demo        # for example another thresholdMilliseconds
  kubectl describe slop chat -n demo    # conditions, attainment, the last decision and its inputs

The load: 8 requests a second of standard, and batch without end, on two engines with two
seats each. Standard has 10 of 100 shares, and is owed its first token within a second in 90 % of
the cases; what it gets follows. Ctrl-C ends everything.

{head}"""
HEAD = "  time  weight of standard  attained   SLO met   proxies  decided"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def report(stage: Stage, *, seconds: float) -> None:
    """A line every few seconds, until the time is over."""
    begin_s = time.monotonic()
    while (passed_s := time.monotonic() - begin_s) < seconds:
        found = await asyncio.to_thread(
            stage.control_plane.get, "slop", "chat", "-n", stage.namespace
        )
        say(f"{passed_s:5.0f}s  {line(found.get('status') or {})}")
        await asyncio.sleep(min(REPORT_S, seconds - passed_s))


def line(status: dict[str, Any]) -> str:
    """What the operator says of the policy, in one line."""
    conditions = {each["type"]: each for each in status.get("conditions", ())}
    first: dict[str, Any] = next(iter(status.get("classes", ())), {})
    objective: dict[str, Any] = next(iter(first.get("objectives", ())), {})
    attained = objective.get("attainedPercent")
    pods = status.get("pods", {})
    current = f"{pods.get('acknowledged', '?')} of {pods.get('ready', '?')}"
    met = conditions.get("SLOMet", {}).get("status", "?")
    decided = status.get("lastDecision", {}).get("reason", "nothing yet")
    return (
        f"{first.get('weight', '?'):>18}  {'?' if attained is None else attained + ' %':>8}  "
        f"{met:>8}  {current:>8}  {decided}"
    )


async def play(control_plane: ControlPlane, *, seconds: float) -> None:
    control_plane.kubectl("create", "namespace", NAMESPACE)
    control_plane.kubectl(*("wait", "--for=create", "--timeout=30s", "sa/default", "-n", NAMESPACE))
    say("starting Prometheus, two engines, two proxies and the operator")
    async with open_stage(control_plane, NAMESPACE, FOLDER) as stage:
        control_plane.apply(policy_resource(NAMESPACE), TENANT)
        kubeconfig = FOLDER.relative_to(ROOT) / "kubeconfig"
        say(INTRODUCTION.format(kubeconfig=kubeconfig, head=HEAD))
        async with Load([each.url for each in stage.proxies]) as load:
            load.keeping("batch", at_once=16)
            load.arriving("standard", per_s=8.0)
            await report(stage, seconds=seconds)
    say("ended")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=24 * 3600.0, help="end after this time")
    seconds = parser.parse_args().seconds
    if missing := missing_binaries():
        sys.stderr.write(f"not found: {', '.join(missing)}; see tests/cluster/get_binaries.sh\n")
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    shutil.rmtree(FOLDER, ignore_errors=True)
    say("starting etcd and the API server (about 10 seconds)")
    with contextlib.suppress(KeyboardInterrupt), ControlPlane(FOLDER) as control_plane:
        shutil.copy(control_plane.kubeconfig, FOLDER / "kubeconfig")
        control_plane.start_controllers()
        control_plane.install_crds()
        asyncio.run(play(control_plane, seconds=seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
