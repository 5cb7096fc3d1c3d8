"""`giveway operate`: what is said on the command line and in the environment, and what is wrong."""

import argparse
from pathlib import Path

import pytest
from giveway_command.main import main
from giveway_operator.command_operate import add_arguments
from giveway_operator.operator_settings import OperatorSettings
from giveway_operator.settings_reading import make_settings

URL = "http://prometheus:9090/prefix"


def settings(*arguments: str) -> OperatorSettings:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return make_settings(parser.parse_args(arguments))


def test_without_arguments_the_defaults_hold() -> None:
    assert settings() == OperatorSettings()


def test_flags_become_settings(tmp_path: Path) -> None:
    token, authority = tmp_path / "token", tmp_path / "ca"
    authority.touch()
    found = settings(
        *("--namespace", "llm", "--namespace", "chat", "--namespace", "llm"),
        *("--prometheus-url", URL, "--prometheus-token-file", str(token)),
        *("--prometheus-ca-file", str(authority), "--prometheus-timeout", "7s"),
        *("--prometheus-header", "X-Scope-OrgID=team a", "--prometheus-matchers", 'cluster="eu"'),
        *("--admin-port", "0", "--lease-duration", "30", "--resync-seconds", "5"),
    )
    assert found.namespaces == ("llm", "chat")
    assert found.prometheus is not None
    assert found.prometheus.url == URL
    assert found.prometheus.headers == (("X-Scope-OrgID", "team a"),)
    assert found.prometheus.bearer_token_file == token
    assert found.prometheus.ca_file == authority
    assert found.prometheus.timeout_s == 7.0
    assert found.prometheus_matchers == 'cluster="eu"'
    assert (found.admin_port, found.lease_duration_s, found.resync_s) == (0, 30.0, 5.0)


def test_environment_counts_where_no_flag_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEWAY_NAMESPACE", "llm, chat")
    monkeypatch.setenv("GIVEWAY_PROMETHEUS_URL", URL)
    monkeypatch.setenv("GIVEWAY_PROMETHEUS_HEADER", "A=1\nB=2")
    monkeypatch.setenv("GIVEWAY_ADMIN_PORT", "tcp://10.0.0.1:9090")
    found = settings()
    assert found.namespaces == ("llm", "chat")
    assert found.prometheus is not None
    assert found.prometheus.headers == (("A", "1"), ("B", "2"))
    assert found.admin_port == 9090, "Kubernetes set that for a Service, nobody meant it"
    assert settings("--namespace", "other").namespaces == ("other",)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--namespace", "Llm"), "no name of a namespace"),
        (("--prometheus-url", "prometheus:9090"), "give a URL like http"),
        (("--prometheus-user", "me"), "needs --prometheus-url"),
        (("--prometheus-header", "A=1"), "needs --prometheus-url"),
        (("--prometheus-url", URL, "--prometheus-header", "A"), "write NAME=VALUE"),
        (
            (
                *("--prometheus-url", URL, "--prometheus-user", "me"),
                *("--prometheus-token-file", "x"),
            ),
            "exclude each other",
        ),
        (("--prometheus-url", URL, "--prometheus-password-file", "x"), "needs --prometheus-user"),
        (("--prometheus-url", URL, "--prometheus-key-file", "x"), "needs --prometheus-cert"),
        (("--prometheus-url", URL, "--prometheus-ca-file", "/none"), "there is no such file"),
        (("--lease-duration", "90"), "give 3 to 60 seconds"),
        (("--log-level", "loud"), "give one of debug, info"),
    ],
)
def test_wrong_use_ends_with_2_and_says_what_is_right(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["operate", *arguments]) == 2
    output = capsys.readouterr().err
    assert output.startswith("giveway operate: ")
    assert told in output


@pytest.mark.parametrize(
    "arguments", [("--admin-port", "x"), ("--resync-seconds", "0"), ("--lease-duration", "nan")]
)
def test_value_that_cannot_be_is_wrong_use(
    arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["operate", *arguments])
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err
