"""What is a proxy to the benchmarks, and how does a running one look?"""

import string
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from giveway_benchmarks.processes import allow_files, free_port, pids_of, start, stop, wait_for_port

CONFIGURATIONS = Path(__file__).parents[1] / "configurations"
FILES = 40_000
"""A proxy needs two for each request: its client's connection and one to the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one proxy is started: what its command and configuration may name."""

    folder: Path
    port: int
    other_port: int
    """For its admin page, if it has one."""
    engine_port: int
    seats: int

    def configuration(self, name: str) -> Path:
        """A file of `configurations/` with the ports filled in."""
        most_files = allow_files(FILES)
        text = string.Template((CONFIGURATIONS / name).read_text("utf-8"))
        path = self.folder / name
        path.write_text(
            text.substitute(
                PORT=self.port,
                OTHER_PORT=self.other_port,
                ENGINE_PORT=self.engine_port,
                SEATS=self.seats,
                FOLDER=self.folder,
                MOST_CONNECTIONS=most_files - 100,
                MOST_CLIENTS=(most_files - 200) // 2,
            )
        )
        return path

    @property
    def engine_url(self) -> str:
        return f"http://127.0.0.1:{self.engine_port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One of the proxies."""

    name: str
    command: Callable[[Place], Sequence[str]]
    missing: Callable[[], str | None] = lambda: None
    """How to get it, if it is not there."""
    environment: Mapping[str, str] = field(default_factory=dict)
    start_within_s: float = 15.0
    after_start: Callable[[Place], None] | None = None
    """What is to be said to it once it listens. None: nothing."""
    patience: float = 1.0
    """How much longer than the others' its runs take."""
    queues: bool = False
    """It holds requests back when the engine has enough."""


class Proxy:
    """A running one."""

    def __init__(
        self, kind: Kind, *, folder: Path, engine_port: int, core: int, seats: int
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.kind = kind
        self.place = Place(
            folder=folder,
            port=free_port(),
            other_port=free_port(),
            engine_port=engine_port,
            seats=seats,
        )
        self.log = folder / "log"
        self._process: subprocess.Popen[bytes] = start(
            kind.command(self.place), core=core, log=self.log, environment=kind.environment
        )

    @property
    def port(self) -> int:
        return self.place.port

    def wait_until_it_listens(self) -> None:
        try:
            wait_for_port(self.port, self._process, within_s=self.kind.start_within_s)
        except TimeoutError as error:
            raise TimeoutError(f"{self.kind.name}: {error}\n{self.log_end()}") from None
        if self.kind.after_start is not None:
            self.kind.after_start(self.place)

    def log_end(self) -> str:
        return self.log.read_text("utf-8", "replace")[-2000:]

    def pids(self) -> list[int]:
        return pids_of(self._process)

    def stop(self) -> None:
        stop(self._process)
