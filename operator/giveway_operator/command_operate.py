"""`giveway operate`: what can be said on the command line and in the environment?

Every flag has an environment variable, `GIVEWAY_` and the flag's name in capitals; what is said on
the command line counts more.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from giveway_operator.missing_parts import tell_missing_part

DESCRIPTION = """\
Publish SLOPolicies and TenantPriorities to the proxies, keep objectives by moving weights, and
report in their status. Two replicas are safe: one leads, the other takes over."""
EPILOG = """\
example:
  giveway operate --prometheus-url http://prometheus.monitoring:9090

Without --prometheus-url weights are the policies' own. Each flag can be given as environment
variable: --admin-port is GIVEWAY_ADMIN_PORT. A flag counts more.

Exit codes: 0 ended by SIGTERM or SIGINT, 1 a port can't be used or no API server is known,
2 wrong use."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = _adder(parser)
    parser.add_argument(
        "--namespace",
        action="append",
        metavar="NAME",
        help="where to look for policies; again for more (the whole cluster)",
    )
    add("--kubeconfig", Path, "FILE", "how to reach the API server (the pod's service account)")
    add("--prometheus-url", str, "URL", "Prometheus or what speaks its API, with its path prefix")
    parser.add_argument(
        "--prometheus-header",
        action="append",
        metavar="NAME=VALUE",
        help="sent with each query, like X-Scope-OrgID=team; again for more",
    )
    add("--prometheus-token-file", Path, "FILE", "bearer token, read anew for each query")
    add("--prometheus-user", str, "NAME", "for basic authentication")
    add("--prometheus-password-file", Path, "FILE", "for basic authentication")
    add("--prometheus-ca-file", Path, "FILE", "whom to trust")
    add("--prometheus-certificate-file", Path, "FILE", "to show, for mutual TLS")
    add("--prometheus-key-file", Path, "FILE", "of that certificate")
    add("--prometheus-matchers", str, "LABELS", 'narrow the series down, like cluster="eu"')
    add("--prometheus-timeout", _seconds, "S", "for a whole query (20)")
    add("--acknowledge-timeout", _seconds, "S", "how long proxies' new document is awaited (180)")
    add("--admin-host", str, "ADDRESS", "admin port's address (0.0.0.0)")
    add("--admin-port", _port, "PORT", "admin port (9090)")
    add("--lease-namespace", str, "NAME", "where the Lease is (the pod's own, else giveway-system)")
    add("--lease-name", str, "NAME", "name of the Lease (giveway-operator)")
    add("--lease-duration", _seconds, "S", "after which another one takes over (20)")
    add("--resync-seconds", _seconds, "S", "longest time between two passes (30)")
    add("--log-level", str, "LEVEL", "debug, info, warning or error (info)")
    add("--log-format", str, "FORMAT", "json or text (json)")


def _adder(
    parser: argparse.ArgumentParser,
) -> Callable[[str, Callable[[str], object], str, str], None]:
    def add(flag: str, kind: Callable[[str], object], metavar: str, text: str) -> None:
        # A default that is a string goes through `type`, so that the environment is checked too.
        default = _environment(flag)
        parser.add_argument(
            flag, type=kind, metavar=metavar, help=text.replace("%", "%%"), default=default
        )

    return add


def _environment(flag: str) -> str | None:
    said = os.environ.get(f"GIVEWAY_{flag[2:].replace('-', '_').upper()}")
    # For a Service called giveway Kubernetes sets GIVEWAY_ADMIN_PORT=tcp://ADDRESS:PORT.
    return None if not said or said.startswith(("tcp://", "udp://", "sctp://")) else said


def _seconds(text: str) -> float:
    try:
        value = float(text.removesuffix("s"))
    except ValueError:
        value = -1.0
    if not 0.0 < value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0, up to a day")
    return value


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give 0 to 65535 (0: a free one)")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    try:
        import kopf as kopf
        import kubernetes as kubernetes
        import prometheus_api_client as prometheus_api_client
    except ImportError as error:
        return tell_missing_part("operate", error)
    import asyncio

    from giveway_operator.operator_logs import configure_logging
    from giveway_operator.settings_reading import make_settings

    try:
        settings = make_settings(arguments)
    except ValueError as error:
        sys.stderr.write(f"giveway operate: {error}\n")
        return 2
    configure_logging(settings.log_level, settings.log_format)
    from giveway_operator.kube_client import ConfigurationError
    from giveway_operator.operator_serving import PortTakenError, operate_until_signal

    try:
        return asyncio.run(operate_until_signal(settings))
    except (ConfigurationError, PortTakenError) as error:
        sys.stderr.write(f"giveway operate: {error}\n")
        return 1
