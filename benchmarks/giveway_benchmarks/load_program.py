"""How is the load made, and what does a run of it give?

The load generator and the engine behind the proxies are one C program (`benchmarks/load/`): one
thread, one clock, no garbage collector. It is compiled here when its source changed, and stays up
while many proxies are measured, since all of them stand before its engine.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

SOURCE = Path(__file__).parents[1] / "load"
BUILD = Path(__file__).parents[2] / ".run" / "benchmarks"
_FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror")


class Delays(msgspec.Struct, frozen=True):
    count: int
    p50_us: float
    p99_us: float
    max_us: float


class GroupResult(msgspec.Struct, frozen=True):
    """What one group of clients saw."""

    answers: int
    """In the window; so are the tokens and the delays."""
    tokens: int
    all_answers: int
    """In the whole run; so are the problems."""
    problems: dict[str, int]
    delays: Delays
    refusals: Delays


class RunResult(msgspec.Struct, frozen=True):
    """One run."""

    window_s: float
    cpu_s: float
    """CPU time of the proxy's processes in the window."""
    load_cpu_s: float
    """CPU time of the load program in the window: near `window_s`, it is itself the limit."""
    blocked_tokens: int
    """Tokens that were due while the proxy had stopped reading."""
    groups: list[GroupResult]


class Held(msgspec.Struct, frozen=True):
    """The moment at which nothing moves any more."""

    in_engine: int
    in_all: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Clients that do the same, in the words of the C program's `group`."""

    clients: int
    plan: str
    arrivals: str = "closed"
    tokens: str = "lockstep"
    tokens_per_s: float = 0.0
    requests_per_s: float = 0.0
    engine_us: int = 0
    body_bytes: int = 2048
    headers: dict[str, str] = field(default_factory=dict)

    def line(self) -> str:
        headers = "".join(f"{name}: {value}|" for name, value in self.headers.items())
        return (
            f"group clients={self.clients} plan={self.plan} arrivals={self.arrivals}"
            f" tokens={self.tokens} tokens_per_s={self.tokens_per_s}"
            f" requests_per_s={self.requests_per_s} engine_us={self.engine_us}"
            f" body_bytes={self.body_bytes} headers={headers.replace(' ', '+')}\n"
        )


class LoadError(Exception):
    """The load program can't be made, or ended."""


def compile_load_program() -> Path:
    """The program, made now if its source changed. Its name carries the source's digest."""
    sources = sorted(SOURCE.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    program = BUILD / f"load-{digest}"
    if program.exists():
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        raise LoadError("no C compiler: install one (apt-get install gcc libc6-dev)")
    BUILD.mkdir(parents=True, exist_ok=True)
    beside = program.with_suffix(".new")
    files = [str(path) for path in sources if path.suffix == ".c"]
    done = subprocess.run(
        [compiler, *_FLAGS, *files, "-o", str(beside)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise LoadError(f"the load program does not compile:\n{done.stderr}")
    beside.replace(program)
    return program


class LoadProgram:
    """The running program."""

    def __init__(self, *, engine_port: int, prefix: Sequence[str] = ()) -> None:
        self.engine_port = engine_port
        self._process = subprocess.Popen(
            [*prefix, str(compile_load_program()), str(engine_port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        if self._line() != b"ready":
            raise LoadError("the load program did not start")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(
        self,
        groups: Sequence[Group],
        *,
        port: int,
        pids: Sequence[int] = (),
        warm_s: float,
        window_s: float,
        end_s: float = 10.0,
        awake: bool = False,
    ) -> RunResult:
        """Warm up, measure, end; returns when all is over.

        `awake`: the load never sleeps, so that the proxy need not wake it up.
        """
        self.begin(
            groups,
            port=port,
            pids=pids,
            warm_s=warm_s,
            window_s=window_s,
            end_s=end_s,
            awake=awake,
        )
        return self.result()

    def begin(
        self,
        groups: Sequence[Group],
        *,
        port: int,
        pids: Sequence[int] = (),
        warm_s: float,
        window_s: float,
        end_s: float = 10.0,
        awake: bool = False,
    ) -> None:
        """As `run`, to look at the proxy meanwhile; `result` waits for the end."""
        for group in groups:
            self._say(group.line())
        self._say(
            f"run port={port} pids={','.join(map(str, pids))}"
            f" warm_s={warm_s} window_s={window_s} end_s={end_s} awake={int(awake)}\n"
        )

    def result(self) -> RunResult:
        return msgspec.json.decode(self._line(), type=RunResult)

    def hold(self, groups: Sequence[Group], *, port: int, end_s: float = 30.0) -> Held:
        """Send what is never answered before `release`, and wait until nothing moves."""
        for group in groups:
            self._say(group.line())
        self._say(f"run port={port} hold=1 end_s={end_s}\n")
        return msgspec.json.decode(self._line(), type=Held)

    def release(self) -> RunResult:
        """Let the engine answer all that is held."""
        self._say("release\n")
        return self.result()

    def _say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise LoadError("the load program ended")
        return line
