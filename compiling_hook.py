"""How does a wheel get machine code for what runs at each request?

A build hook for hatchling, off unless `HATCH_BUILD_HOOKS_ENABLE=1` (`make wheel`). mypyc translates
the modules that `pyproject.toml` names to C, from the types that they state anyway, and the results
go into the wheel beside their sources. Python prefers them; deleting them gives plain Python back.

All of it happens in a copy, so a checkout never holds compiled modules that hide later edits.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCES = "admission"


class CompilingHook(BuildHookInterface[Any]):
    """Adds the compiled modules to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless this is an editable install, which runs the sources as they are."""
        if version == "editable":
            return
        self._copy = tempfile.TemporaryDirectory(prefix="giveway-compiling-")  # gone on errors too
        sources = Path(self._copy.name, _SOURCES)
        shutil.copytree(
            Path(self.root, _SOURCES), sources, ignore=shutil.ignore_patterns("__pycache__")
        )
        modules: list[str] = []
        for named in self.config["compiled"]:
            path = sources / named
            if not path.exists():
                raise FileNotFoundError(f"pyproject.toml wants {named} compiled: no such module")
            found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
            modules += [str(each.relative_to(sources)) for each in found]
        run = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "mypyc", "--follow-imports=silent", *modules],
            cwd=sources,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            raise RuntimeError(f"mypyc could not compile giveway:\n{run.stdout}")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for built in sources.glob("**/*.so"):
            if "build" not in built.relative_to(sources).parts:
                build_data["force_include"][str(built)] = str(built.relative_to(sources))

    def finalize(self, version: str, *_: object) -> None:
        """Throw the copy away."""
        if version != "editable":
            self._copy.cleanup()
