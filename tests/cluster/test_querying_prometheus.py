"""Asking a Prometheus that is locked up: mutual TLS, a password, and a path prefix."""

import base64
import ssl
import subprocess
from pathlib import Path

import pytest
import yaml
from giveway_operator.querying import (
    PrometheusClient,
    PrometheusSettings,
    QueryError,
    QueryFailure,
)

from tests.support.prometheus import Prometheus, binaries

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PASSWORD = "secret-of-the-tests"
HASHED = "$2y$05$abcdefghijklmnopqrstuu6o3dlyWnvEiDh3K/MBghWoid.93Z6L2"


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


def _certificates(folder: Path) -> None:
    """ca.crt, and server and client with key and certificate."""
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=test"),
        *("-keyout", folder / "ca.key", "-out", folder / "ca.crt"),
    )
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        _openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", folder / f"{name}.key", "-out", folder / f"{name}.csr"),
        )
        _openssl(
            *("x509", "-req", "-in", folder / f"{name}.csr", "-days", "30", "-CAcreateserial"),
            *("-CA", folder / "ca.crt", "-CAkey", folder / "ca.key"),
            *("-extfile", folder / "names", "-out", folder / f"{name}.crt"),
        )


async def _ask(settings: PrometheusSettings) -> int:
    client = PrometheusClient(settings)
    try:
        return len(await client.query("vector(1)"))
    finally:
        client.close()


@pytest.mark.parametrize("version", ["2", "3"])
async def test_it_shows_its_certificate_and_password_and_trusts_only_the_given_ca(
    tmp_path: Path, version: str
) -> None:
    found = binaries()
    if version not in found:
        pytest.skip(f"there is no Prometheus {version} here")
    _certificates(tmp_path)
    web = tmp_path / "web.yml"
    web.write_text(
        yaml.safe_dump(
            {
                "tls_server_config": {
                    "cert_file": str(tmp_path / "server.crt"),
                    "key_file": str(tmp_path / "server.key"),
                    "client_ca_file": str(tmp_path / "ca.crt"),
                    "client_auth_type": "RequireAndVerifyClientCert",
                },
                "basic_auth_users": {"giveway": HASHED},
            }
        )
    )
    tls = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    tls.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
    token = base64.b64encode(f"giveway:{PASSWORD}".encode()).decode()
    data = tmp_path / "prometheus"
    data.mkdir()
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    (tmp_path / "wrong").write_text("guessed\n")
    with Prometheus(
        found[version],
        data,
        options=[f"--web.config.file={web}"],
        prefix="/prom",
        tls=tls,
        headers={"Authorization": f"Basic {token}"},
    ) as running:

        def settings(
            *, ca: bool = True, certificate: bool = True, password: str = "password"
        ) -> PrometheusSettings:
            return PrometheusSettings(
                url=running.url,
                ca_file=tmp_path / "ca.crt" if ca else None,
                client_certificate_file=tmp_path / "client.crt" if certificate else None,
                client_key_file=tmp_path / "client.key" if certificate else None,
                basic_user="giveway",
                basic_password_file=tmp_path / password,
            )

        assert await _ask(settings()) == 1
        with pytest.raises(QueryError, match="401") as refused:
            await _ask(settings(password="wrong"))
        assert refused.value.reason is QueryFailure.CREDENTIALS
        with pytest.raises(QueryError, match="certificate verify failed") as untrusted:
            await _ask(settings(ca=False))
        assert untrusted.value.reason is QueryFailure.TLS
        with pytest.raises(QueryError) as unknown:
            await _ask(settings(certificate=False))
        assert unknown.value.reason in (QueryFailure.TLS, QueryFailure.UNREACHABLE)
