"""How does a test get a real Prometheus?

`Prometheus` is a server of its own on a free port, with its data in a folder of the test; it
scrapes what the test names (`scrape`), and follows changes of that within moments. `Exporter` is a
page that the test writes.

The binary is looked for in KUBEBUILDER_ASSETS and on PATH. Debian's is 2.x, which keeps the text of
`le` as it is exposed; 3.x writes every bound with a point.
"""

import json
import os
import shutil
import signal
import ssl
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import yaml

from tests.support.ports import free_ports
from tests.support.waiting import until, until_blocking

SCRAPE_INTERVAL_S = 0.25


def binaries() -> dict[str, Path]:
    """Every Prometheus there is, by its major version."""
    folders = [os.environ.get("KUBEBUILDER_ASSETS", ""), *os.environ.get("PATH", "").split(":")]
    found: dict[str, Path] = {}
    for folder in folders:
        file = Path(folder or "/nonexistent") / "prometheus"
        if file.exists():
            told = subprocess.run([file, "--version"], capture_output=True, text=True, timeout=30)
            version = (told.stdout + told.stderr).split("version ", 1)[-1].split(" ", 1)[0]
            found.setdefault(version.split(".", 1)[0], file)
    return found


class Exporter:
    """A /metrics page whose text the test sets."""

    def __init__(self) -> None:
        self.text = ""
        self.fails = False
        """Whether it answers 500."""
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = exporter.text.encode()
                self.send_response(500 if exporter.fails else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Prometheus:
    """A running server, a context manager: leaving it ends the process."""

    def __init__(
        self,
        binary: Path,
        folder: Path,
        *,
        options: Sequence[str] = (),
        scrape_interval_s: float = SCRAPE_INTERVAL_S,
        prefix: str = "",
        tls: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`tls` and `headers`: what this helper itself needs to ask it, if `options` want that."""
        self._tls = tls
        self._headers = dict(headers or {})
        self._folder = folder
        (self._port,) = free_ports(1)
        self._targets = folder / "targets.json"
        self._targets.write_text("[]")
        configuration = folder / "prometheus.yml"
        configuration.write_text(
            yaml.safe_dump(
                {
                    "global": {
                        "scrape_interval": f"{int(scrape_interval_s * 1000)}ms",
                        "scrape_timeout": f"{int(scrape_interval_s * 1000)}ms",
                    },
                    "scrape_configs": [
                        {
                            "job_name": "giveway",
                            "file_sd_configs": [
                                {"files": [str(self._targets)], "refresh_interval": "1s"}
                            ],
                        }
                    ],
                }
            )
        )
        self._command = [
            str(binary),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            f"--web.route-prefix={prefix or '/'}",
            "--log.level=warn",
            *options,
        ]
        self._process: subprocess.Popen[bytes] | None = None
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._port}{prefix}"

    def scrape(self, *addresses: str, labels: Mapping[str, str] | None = None) -> None:
        """From now on these `host:port` and no others."""
        beside = self._folder / "targets.tmp"
        beside.write_text(json.dumps([{"targets": list(addresses), "labels": dict(labels or {})}]))
        beside.rename(self._targets)

    def query(self, promql: str) -> list[dict[str, object]]:
        """What it answers, without any of the product's code."""
        with self._open(f"/api/v1/query?query={urllib.parse.quote(promql)}") as answer:
            found: list[dict[str, object]] = json.load(answer)["data"]["result"]
        return found

    async def scraped(self, *addresses: str, times: int = 2) -> None:
        """Wait until each of them was scraped so often."""
        for address in addresses:
            query = f'count_over_time(up{{instance="{address}"}}[1h]) >= {times}'
            await until(lambda: self.query(query), what=f"{address} is scraped")  # noqa: B023

    def __enter__(self) -> Self:
        with (self._folder / "prometheus.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until_blocking(self._is_ready, what="Prometheus is ready", within_s=60.0)
        return self

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "prometheus.log").read_text()
        try:
            with self._open("/-/ready") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _open(self, path: str) -> Any:
        asked = urllib.request.Request(f"{self.url}{path}", headers=self._headers)
        return urllib.request.urlopen(asked, timeout=10, context=self._tls)

    def pause(self) -> None:
        """It accepts connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __exit__(self, *exc: object) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder / "data", ignore_errors=True)
