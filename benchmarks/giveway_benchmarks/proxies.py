"""Which proxies are compared, and how is each started?"""

import shutil
import string
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from giveway_benchmarks.processes import free_port, pids_of, start, stop, wait_for_port

CONFIGURATIONS = Path(__file__).parents[1] / "configurations"


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
        text = string.Template((CONFIGURATIONS / name).read_text("utf-8"))
        path = self.folder / name
        path.write_text(
            text.substitute(
                PORT=self.port,
                OTHER_PORT=self.other_port,
                ENGINE_PORT=self.engine_port,
                SEATS=self.seats,
                FOLDER=self.folder,
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

    def wait_until_ready(self) -> None:
        try:
            wait_for_port(self.port, self._process, within_s=self.kind.start_within_s)
        except TimeoutError as error:
            raise TimeoutError(f"{self.kind.name}: {error}\n{self.log_end()}") from None

    def log_end(self) -> str:
        return self.log.read_text("utf-8", "replace")[-2000:]

    def pids(self) -> list[int]:
        return pids_of(self._process)

    def stop(self) -> None:
        stop(self._process)


def _giveway(place: Place) -> Sequence[str]:
    policy = place.configuration("giveway.yaml")
    (place.folder / "giveway.keys").write_text("sk-benchmark\n")
    return (
        str(Path(sys.executable).parent / "giveway"),
        "serve",
        f"--upstream={place.engine_url}",
        f"--policy={policy}",
        "--host=127.0.0.1",
        f"--port={place.port}",
        "--admin-host=127.0.0.1",
        f"--admin-port={place.other_port}",
    )


def _common(place: Place) -> Sequence[str]:
    program = Path(__file__).with_name("common_proxy.py")
    return sys.executable, str(program), str(place.port), place.engine_url


def _giveway_missing() -> str | None:
    found = shutil.which("giveway", path=str(Path(sys.executable).parent))
    return None if found else "make .venv/run-ready"


GIVEWAY = Kind(name="giveway", command=_giveway, missing=_giveway_missing, queues=True)
COMMON = Kind(name="common", command=_common)
KINDS = {kind.name: kind for kind in (COMMON, GIVEWAY)}
