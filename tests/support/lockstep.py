"""What keeps a proxy saturated, so that what one chunk or one request costs can be counted?

A small C program (`lockstep.c`), compiled when it is first needed, that is the engine and its
clients at once.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Literal

CLIENTS = 64


def compile_lockstep(folder: Path) -> Path:
    """The compiled program. Raises `RuntimeError` without a C compiler: nothing is proved then."""
    if shutil.which("cc") is None:
        raise RuntimeError("no C compiler (cc): the load can't be made")
    path = folder / "lockstep"
    source = Path(__file__).parent / "lockstep.c"
    subprocess.run(["cc", "-O2", "-o", str(path), str(source)], check=True)
    return path


class Lockstep:
    """The saturating load: engine and clients in one program."""

    def __init__(self, program: Path, mode: Literal["stream", "plain"]) -> None:
        self._process = subprocess.Popen(
            [str(program), mode, str(CLIENTS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.engine_port = int(self._read().split()[1])

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"lockstep ended with {self._process.wait()}"
        return line

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def start(self, url: str) -> None:
        """Connect all clients to the proxy."""
        self._write(url.rsplit(":", 1)[1])

    def count(self) -> int:
        """Chunks or answers that the clients have read so far."""
        self._write("count")
        return int(self._read())

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=10)
