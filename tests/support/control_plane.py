"""How does a test get a real Kubernetes API server?

`ControlPlane` runs etcd and kube-apiserver on free loopback ports, with everything they write in a
folder of the test, and kube-controller-manager where the test asks for it (namespaces go away,
tokens of ServiceAccounts). No node: pods are objects that nobody starts.

The binaries are looked for in KUBEBUILDER_ASSETS and on PATH; `tests/cluster/get_binaries.sh`
builds them from their Go modules.
"""

import json
import os
import shutil
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import yaml

from tests.support.ports import free_ports
from tests.support.waiting import until_blocking

BINARIES = ("etcd", "kube-apiserver", "kubectl")
START_S = 120.0
STOP_S = 20.0
ADMIN_TOKEN = "admin-of-the-tests"
ROOT = Path(__file__).parents[2]


def find_binary(name: str) -> Path | None:
    """Where the program is. None: nowhere."""
    folders = os.pathsep.join(
        [os.environ.get("KUBEBUILDER_ASSETS", ""), os.environ.get("PATH", os.defpath)]
    )
    found = shutil.which(name, path=folders)
    return None if found is None else Path(found)


def missing_binaries() -> list[str]:
    """What has to be got before a control plane can run."""
    return [name for name in BINARIES if find_binary(name) is None]


class ControlPlane:
    """A running API server, a context manager: leaving it ends all processes.

    `users` are further users: token by name. They may do nothing until a test gives them roles.
    """

    def __init__(self, folder: Path, *, users: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._users = {"admin": ADMIN_TOKEN, **(users or {})}
        self._etcd_port, self._peer_port, self._port = free_ports(3)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.url = f"https://127.0.0.1:{self._port}"
        self.certificate = folder / "pki" / "apiserver.crt"
        """What clients verify the server with."""
        self.kubeconfig = self._write_kubeconfig("admin")

    def __enter__(self) -> Self:
        self._make_keys()
        try:
            self._start_etcd()
            self.start_apiserver()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start_apiserver(self) -> None:
        """Start the API server, and wait until it is ready."""
        pki = self.folder / "pki"
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={pki}",
            f"--token-auth-file={pki / 'tokens.csv'}",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged=true",
            "--endpoint-reconciler-type=none",
        )
        until_blocking(
            lambda: self._is_alive("kube-apiserver") and self._answers("/readyz"),
            what="the API server is ready",
            within_s=START_S,
        )

    def start_controllers(self) -> None:
        """Namespaces that are deleted go away, objects without owner too."""
        pki = self.folder / "pki"
        self._spawn(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={pki / 'sa.key'}",
            f"--root-ca-file={self.certificate}",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_ports(1)[0]}",
            "--controllers=*,-service-lb-controller",
        )

    def kill_apiserver(self) -> None:
        """As if its machine had gone. What it stored is there after `start_apiserver`."""
        self._end("kube-apiserver", signal.SIGKILL)

    def pause_apiserver(self) -> None:
        """It holds its connections and answers nothing, until `resume_apiserver`."""
        self._running["kube-apiserver"].send_signal(signal.SIGSTOP)

    def resume_apiserver(self) -> None:
        self._running["kube-apiserver"].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
            self._end(name, signal.SIGTERM)

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl as admin; its standard output. `check` False: with what it said of errors."""
        program = find_binary("kubectl")
        assert program is not None
        told = subprocess.run(
            [program, f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if check:
            assert told.returncode == 0, f"kubectl {' '.join(arguments)}: {told.stderr}"
            return told.stdout
        return told.stdout + told.stderr

    def apply(self, *documents: Mapping[str, Any], check: bool = True) -> str:
        """kubectl apply what is given."""
        text = yaml.safe_dump_all(documents, sort_keys=False)
        return self.kubectl("apply", "-f", "-", stdin=text, check=check)

    def get(self, *arguments: str) -> Any:
        """kubectl get, as JSON."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def install_crds(self) -> None:
        """Apply `crds/`, and wait until the server serves them."""
        self.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        self.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A namespace for one test, marked for deletion after it."""
        self.kubectl("create", "namespace", name)
        try:
            yield name
        finally:
            self.kubectl("delete", "namespace", name, "--wait=false", check=False)

    def pod(
        self, namespace: str, name: str, labels: Mapping[str, str], *, ready: bool = True
    ) -> None:
        """A pod, with the status that a kubelet would report; made anew or changed."""
        container = {"name": "vllm", "image": "none"}
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
                "spec": {"containers": [container], "automountServiceAccountToken": False},
            }
        )
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        status = {"status": {"phase": "Running", "conditions": [condition]}}
        self.kubectl(
            *("patch", "pod", name, "-n", namespace, "--subresource=status", "--type=merge"),
            *("-p", json.dumps(status)),
        )

    def kubeconfig_of(self, user: str) -> Path:
        """For one of `users`."""
        return self._write_kubeconfig(user)

    def log_of(self, name: str) -> str:
        """What the program wrote."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    # Processes

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        self._spawn(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )

    def _spawn(self, name: str, *arguments: str) -> None:
        program = find_binary(name)
        assert program is not None, f"{name} is missing: tests/cluster/get_binaries.sh"
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [program, *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end(self, name: str, number: signal.Signals) -> None:
        process = self._running.pop(name, None)
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_S)

    def _is_alive(self, name: str) -> bool:
        code = self._running[name].poll()
        assert code is None, f"{name} ended with {code}:\n{self.log_of(name)[-4000:]}"
        return True

    def _answers(self, path: str) -> bool:
        request = urllib.request.Request(
            self.url + path, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}
        )
        if not self.certificate.exists():
            return False
        context = ssl.create_default_context(cafile=str(self.certificate))
        try:
            with urllib.request.urlopen(request, timeout=5, context=context) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    # Files

    def _make_keys(self) -> None:
        """The key of ServiceAccounts, and who has which token. The server makes its certificate."""
        pki = self.folder / "pki"
        pki.mkdir(exist_ok=True)
        _run(["openssl", "genrsa", "-out", str(pki / "sa.key"), "2048"])
        _run(["openssl", "rsa", "-in", str(pki / "sa.key"), "-pubout", "-out", str(pki / "sa.pub")])
        rows = [
            f"{token},{user},{user}" + (",system:masters" if user == "admin" else "")
            for user, token in self._users.items()
        ]
        (pki / "tokens.csv").write_text("\n".join(rows) + "\n")

    def _write_kubeconfig(self, user: str) -> Path:
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self._users[user]}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
        file = self.folder / f"kubeconfig-{user}"
        file.write_text(yaml.safe_dump(content))
        file.chmod(0o600)
        return file


def _run(command: Sequence[str]) -> None:
    told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, f"{command[0]}: {told.stderr}"
