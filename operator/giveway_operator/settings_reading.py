"""Which settings follow from what was said on the command line and in the environment?"""

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from giveway_operator.operator_settings import OperatorSettings
from giveway_operator.querying import PrometheusSettings

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_HEADER = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+)=([!-~][ -~]*)")
_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("json", "text")
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def make_settings(arguments: argparse.Namespace) -> OperatorSettings:
    """Raises `ValueError` with what to do about it."""
    _check_choice("--log-level", arguments.log_level, _LEVELS)
    _check_choice("--log-format", arguments.log_format, _FORMATS)
    namespaces = arguments.namespace or _words(os.environ.get("GIVEWAY_NAMESPACE"))
    for each in namespaces:
        _check_name("--namespace", each)
    prometheus = _prometheus(arguments)
    defaults = OperatorSettings()
    lease_namespace = arguments.lease_namespace or _own_namespace() or defaults.lease_namespace
    _check_name("--lease-namespace", lease_namespace)
    lease_duration_s = arguments.lease_duration or defaults.lease_duration_s
    if not 3 <= lease_duration_s <= 60:
        raise ValueError("--lease-duration: give 3 to 60 seconds, so that a takeover is quick")
    return OperatorSettings(
        kubeconfig=arguments.kubeconfig,
        namespaces=tuple(dict.fromkeys(namespaces)),
        prometheus=prometheus,
        prometheus_matchers=arguments.prometheus_matchers or "",
        acknowledge_timeout_s=arguments.acknowledge_timeout or defaults.acknowledge_timeout_s,
        admin_host=arguments.admin_host or defaults.admin_host,
        admin_port=defaults.admin_port if arguments.admin_port is None else arguments.admin_port,
        lease_namespace=lease_namespace,
        lease_name=arguments.lease_name or defaults.lease_name,
        lease_duration_s=lease_duration_s,
        resync_s=arguments.resync_seconds or defaults.resync_s,
        log_level=arguments.log_level or defaults.log_level,
        log_format=arguments.log_format or defaults.log_format,
    )


def _prometheus(arguments: argparse.Namespace) -> PrometheusSettings | None:
    if not arguments.prometheus_url:
        given = [
            name
            for name, value in vars(arguments).items()
            if name.startswith("prometheus_") and name != "prometheus_url" and value
        ]
        if given:
            flag = f"--{given[0].replace('_', '-')}"
            raise ValueError(f"{flag} needs --prometheus-url: give the URL of Prometheus")
        return None
    if not re.fullmatch(r"https?://[^\s/]+\S*", arguments.prometheus_url):
        raise ValueError(
            f"--prometheus-url {arguments.prometheus_url}: give a URL like "
            "http://prometheus.monitoring:9090"
        )
    if arguments.prometheus_token_file and arguments.prometheus_user:
        raise ValueError(
            "--prometheus-token-file and --prometheus-user exclude each other: give one of them"
        )
    if arguments.prometheus_password_file and not arguments.prometheus_user:
        raise ValueError("--prometheus-password-file needs --prometheus-user")
    if arguments.prometheus_key_file and not arguments.prometheus_certificate_file:
        raise ValueError("--prometheus-key-file needs --prometheus-certificate-file")
    headers = arguments.prometheus_header or _lines(os.environ.get("GIVEWAY_PROMETHEUS_HEADER"))
    settings = PrometheusSettings(
        url=arguments.prometheus_url,
        headers=tuple(_header(each) for each in headers),
        bearer_token_file=arguments.prometheus_token_file,
        basic_user=arguments.prometheus_user,
        basic_password_file=arguments.prometheus_password_file,
        ca_file=arguments.prometheus_ca_file,
        client_certificate_file=arguments.prometheus_certificate_file,
        client_key_file=arguments.prometheus_key_file,
    )
    if arguments.prometheus_timeout is not None:
        settings = replace(settings, timeout_s=arguments.prometheus_timeout)
    for flag, file in (
        ("--prometheus-ca-file", settings.ca_file),
        ("--prometheus-certificate-file", settings.client_certificate_file),
        ("--prometheus-key-file", settings.client_key_file),
    ):
        if file is not None and not file.is_file():
            raise ValueError(f"{flag} {file}: there is no such file")
    return settings


def _header(text: str) -> tuple[str, str]:
    found = _HEADER.fullmatch(text)
    if found is None:
        raise ValueError("--prometheus-header: write NAME=VALUE, like X-Scope-OrgID=team")
    return found[1], found[2]


def _check_choice(flag: str, value: str | None, choices: Sequence[str]) -> None:
    if value is not None and value not in choices:
        raise ValueError(f"{flag} {value}: give one of {', '.join(choices)}")


def _check_name(flag: str, name: str) -> None:
    if len(name) > 63 or not _NAME.fullmatch(name):
        raise ValueError(f"{flag} {name[:80]}: that is no name of a namespace")


def _words(text: str | None) -> list[str]:
    return [each for each in re.split(r"[,\s]+", text or "") if each]


def _lines(text: str | None) -> list[str]:
    return [each.strip() for each in (text or "").splitlines() if each.strip()]


def _own_namespace() -> str | None:
    """Of the pod that this runs in. None: in none."""
    try:
        return _OWN_NAMESPACE.read_text().strip() or None
    except OSError:
        return None
