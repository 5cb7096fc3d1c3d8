"""`giveway serve`: what can be said on the command line and in the environment?

Every flag has an environment variable, `GIVEWAY_` and the flag's name in capitals; what is said on
the command line counts more.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from giveway_admission.settings import ClientCredentials, ProxySettings

DESCRIPTION = """\
Stand before an engine: classify, limit and queue requests, and let in as much as keeps it busy.
Clients use the data port as they would use the engine; metrics, health and a page are on the admin
port."""
EPILOG = """\
example:
  giveway serve --upstream http://127.0.0.1:8000 --policy policy.yaml

Without --policy the built-in classes realtime, standard and batch hold. Each flag can be given as
environment variable: --admin-port is GIVEWAY_ADMIN_PORT. A flag counts more.

Exit codes: 0 ended by SIGTERM or SIGINT, 1 the policy, a port, the tickets or the limit of
open files can't be used, 2 wrong use."""

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_DEFAULTS = {each.name: each.default for each in fields(ProxySettings)}


def parse_bytes(text: str) -> int:
    """`64Mi`, `500k`, `1048576`."""
    digits = text.rstrip("kKmMgGiIbB")
    unit = text[len(digits) :].lower().removesuffix("b")
    if not digits.isdigit() or unit not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 64Mi, 500k or plain bytes")
    return int(digits) * _UNITS[unit]


def parse_seconds(text: str) -> float:
    try:
        value = float(text.removesuffix("s"))
    except ValueError:
        value = -1.0
    if not 0.0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def parse_port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give 0 to 65535 (0: a free one)")
    return int(text)


def parse_count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def parse_credentials(text: str) -> ClientCredentials:
    try:
        return ClientCredentials(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is none of auto, forward and drop") from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = _Adder(parser)
    add("--upstream", str, "URL", "the engine, for example http://127.0.0.1:8000 (required)")
    add("--policy", Path, "PATH", "file or folder with SLOPolicy and TenantPriority documents")
    add("--policy-document", Path, "DIR", "folder with the compiled policy document, as mounted")
    add("--watch-config-map", str, "NAMESPACE/NAME", "ConfigMap to watch through the API server")
    add("--kube-api", str, "URL", "that API server (the cluster's own)")
    add("--kube-token-file", Path, "FILE", "token for it")
    add("--kube-ca-file", Path, "FILE", "whom to trust there")
    add("--key-digests", Path, "DIR", "folder with digests of API keys, as mounted from a Secret")
    add("--policy-name", str, "NAME", "which of several policies: name or namespace/name")
    add("--host", str, "ADDRESS", "data port's address")
    add("--port", parse_port, "PORT", "data port")
    add("--admin-host", str, "ADDRESS", "admin port's address")
    add("--admin-port", parse_port, "PORT", "admin port")
    add("--header-timeout", parse_seconds, "S", "time for a request head")
    add("--body-timeout", parse_seconds, "S", "time in which a body ends or brings 256 KiB")
    add("--write-timeout", parse_seconds, "S", "a client that reads nothing this long is cut")
    add(
        "--min-read-rate",
        parse_bytes,
        "SIZE",
        "who then reads less a second is cut (0: nobody)",
    )
    add("--keep-alive", parse_seconds, "S", "idle time of clients' connections")
    add("--max-head", parse_bytes, "SIZE", "largest request head")
    add("--max-headers", parse_count, "N", "most headers of a request")
    add("--max-body", parse_bytes, "SIZE", "largest request body")
    add("--body-buffer", parse_bytes, "SIZE", "what is held of a body that waits")
    add("--max-arriving", parse_bytes, "SIZE", "requests of all clients that are still arriving")
    add("--arriving-wait", parse_seconds, "S", "how long a body waits in its socket for room")
    add("--max-connections", parse_count, "N", "clients at once")
    add("--engine-idle-pool", parse_seconds, "S", "longest idle time of a connection to the engine")
    add("--engine-api-key-file", Path, "FILE", "file with the key that the engine asks for")
    add("--client-credentials", parse_credentials, "WHAT", "clients' keys: auto, forward or drop")
    add("--tickets", Path, "DIR", "keep requests that prefer an asynchronous answer in DIR")
    add("--ticket-attempts", parse_count, "N", "how many processes may try a ticket's request")
    add("--ticket-retention", parse_seconds, "S", "time for which tickets' answers are kept")
    add("--ticket-wait", parse_seconds, "S", "longest wait before a ticket is given")
    add("--ticket-count", parse_count, "N", "tickets at once")
    add("--ticket-bytes", parse_bytes, "SIZE", "tickets' bodies and answers together")
    add("--ticket-answer-bytes", parse_bytes, "SIZE", "largest answer of a ticket")
    add("--drain-timeout", parse_seconds, "S", "time for running answers after SIGTERM")
    add("--drain-token", str, "TOKEN", "what /drain asks for")
    add("--log-level", str, "LEVEL", "debug, info, warning or error")
    add("--log-format", str, "FORMAT", "json or text")
    add.switch("--access-log", "write a line for each request")


_SETTING_OF_FLAG = {
    "header_timeout": "header_timeout_s",
    "body_timeout": "body_timeout_s",
    "write_timeout": "write_timeout_s",
    "min_read_rate": "minimum_read_bytes_per_s",
    "keep_alive": "keep_alive_s",
    "max_head": "maximum_head_bytes",
    "max_headers": "maximum_headers",
    "max_body": "maximum_body_bytes",
    "body_buffer": "buffered_body_bytes",
    "max_arriving": "maximum_arriving_bytes",
    "arriving_wait": "arriving_wait_s",
    "max_connections": "maximum_connections",
    "engine_idle_pool": "engine_idle_pool_s",
    "ticket_retention": "ticket_retention_s",
    "ticket_wait": "ticket_longest_wait_s",
    "ticket_count": "ticket_maximum_count",
    "ticket_bytes": "ticket_maximum_bytes",
    "ticket_answer_bytes": "ticket_maximum_answer_bytes",
    "drain_timeout": "drain_timeout_s",
}
"""Where a flag is named otherwise than its setting."""


class _Adder:
    """Adds flags whose defaults come from the environment, then from `ProxySettings`."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser

    def __call__(
        self, flag: str, kind: Callable[[str], object], metavar: str, help_text: str
    ) -> None:
        name = flag[2:].replace("-", "_")
        default = _DEFAULTS.get(_SETTING_OF_FLAG.get(name, name))
        shown = _show(default, is_size=kind is parse_bytes)
        # A default that is a string goes through `type`, so that the environment is checked too.
        self._parser.add_argument(
            flag,
            type=kind,
            metavar=metavar,
            help=f"{help_text}{shown}".replace("%", "%%"),
            default=_said_in_environment(name),
        )

    def switch(self, flag: str, help_text: str) -> None:
        name = flag[2:].replace("-", "_")
        said = (_said_in_environment(name) or "").lower() in ("1", "true", "yes", "on")
        self._parser.add_argument(
            flag, action=argparse.BooleanOptionalAction, default=said, help=help_text
        )


def _said_in_environment(name: str) -> str | None:
    """None: nothing, or nothing by a person. For a Service called giveway Kubernetes sets
    GIVEWAY_PORT=tcp://ADDRESS:PORT in every pod of its namespace."""
    said = os.environ.get(f"GIVEWAY_{name.upper()}")
    return None if not said or said.startswith(("tcp://", "udp://", "sctp://")) else said


def _show(default: object, *, is_size: bool) -> str:
    """A default as it would be written. Empty: there is none."""
    if not isinstance(default, int | float | str):
        return ""
    if is_size and isinstance(default, int):
        return f" ({default // 2**20}Mi)" if default % 2**20 == 0 else f" ({default // 1024}Ki)"
    return f" ({default:g})" if isinstance(default, float) else f" ({default})"


def make_settings(arguments: argparse.Namespace) -> ProxySettings:
    """Raises `ValueError` with what to do about it."""
    from giveway_admission.upstreams import UpstreamError, parse_upstream

    if not arguments.upstream:
        raise ValueError("--upstream is missing: give the engine's URL, like http://127.0.0.1:8000")
    try:
        parse_upstream(arguments.upstream)
    except UpstreamError as error:
        raise ValueError(f"--upstream {arguments.upstream}: {error}") from error
    _check_policy_source(arguments)
    given = {
        name: value
        for name, value in _by_setting(arguments).items()
        if name in _DEFAULTS and value is not None
    }
    if arguments.engine_api_key_file is not None:
        given["engine_api_key"] = _read_key(arguments.engine_api_key_file)
    if arguments.log_level is not None and arguments.log_level not in _LEVELS:
        raise ValueError(f"--log-level {arguments.log_level}: give one of {', '.join(_LEVELS)}")
    if arguments.log_format is not None and arguments.log_format not in ("json", "text"):
        raise ValueError(f"--log-format {arguments.log_format}: give json or text")
    return ProxySettings(**given)  # type: ignore[arg-type]


def _check_policy_source(arguments: argparse.Namespace) -> None:
    documents = arguments.policy_document is not None or arguments.watch_config_map is not None
    if arguments.policy is not None and documents:
        other = "--policy-document" if arguments.policy_document else "--watch-config-map"
        raise ValueError(f"--policy and {other} exclude each other: give one of them")
    if arguments.policy_name and arguments.policy is None and not documents:
        raise ValueError(
            "--policy-name chooses among policies: give --policy, --policy-document or "
            "--watch-config-map"
        )
    if arguments.key_digests is not None and not documents:
        raise ValueError(
            "--key-digests belongs to --policy-document or --watch-config-map: give one of them"
        )
    if arguments.watch_config_map is None:
        return
    if not _CONFIG_MAP.fullmatch(arguments.watch_config_map):
        raise ValueError(
            f"--watch-config-map {arguments.watch_config_map}: give NAMESPACE/NAME, like "
            "llm/giveway-policy"
        )
    if arguments.kube_api is None and "KUBERNETES_SERVICE_HOST" not in os.environ:
        raise ValueError("--watch-config-map outside of a cluster needs --kube-api URL")
    if arguments.kube_api is not None and not _KUBE_URL.fullmatch(arguments.kube_api):
        raise ValueError(
            f"--kube-api {arguments.kube_api}: give a URL like https://kubernetes.default.svc"
        )


_CONFIG_MAP = re.compile(r"[a-z0-9][-a-z0-9]{0,62}/[a-z0-9][-.a-z0-9]{0,252}")
_KUBE_URL = re.compile(r"https?://[^\s/]+\S*")
_LEVELS = ("debug", "info", "warning", "error")


def _by_setting(arguments: argparse.Namespace) -> dict[str, object]:
    return {_SETTING_OF_FLAG.get(name, name): value for name, value in vars(arguments).items()}


def _read_key(path: Path) -> str:
    try:
        key = path.read_text(encoding="ascii").split("\n", 1)[0].strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not plain text"
        raise ValueError(f"--engine-api-key-file {path}: {reason}") from None
    if not key or not key.isprintable():
        raise ValueError(f"--engine-api-key-file {path}: its first line has to be the key")
    return key


def run(arguments: argparse.Namespace) -> int:
    try:
        settings = make_settings(arguments)
    except ValueError as error:
        sys.stderr.write(f"giveway serve: {error}\n")
        return 2

    import uvloop
    from giveway_policy.faults import PolicyError

    from giveway_admission.file_limits import TooFewFilesError
    from giveway_admission.logs import LogFormat, configure_logging
    from giveway_admission.serving import PortTakenError, serve_until_signal
    from giveway_admission.ticket_store import TicketStoreError

    configure_logging(settings.log_level, LogFormat(settings.log_format))
    try:
        return uvloop.run(serve_until_signal(settings))
    except PolicyError as error:
        sys.stderr.write(f"giveway serve: the policy can't be used:\n{error}\n")
    except (PortTakenError, TicketStoreError, TooFewFilesError) as error:
        sys.stderr.write(f"giveway serve: {error}\n")
    return 1
