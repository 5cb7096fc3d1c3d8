"""What can be said on the command line and in the environment?"""

import argparse
import os
from pathlib import Path

import pytest
from giveway_admission.command_serve import add_arguments, make_settings, run
from giveway_admission.settings import ClientCredentials, ProxySettings

URL = "http://127.0.0.1:8000"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of whoever runs the tests does not matter."""
    for name in list(os.environ):
        if name.startswith("GIVEWAY_"):
            monkeypatch.delenv(name)


def settings(*arguments: str) -> ProxySettings:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return make_settings(parser.parse_args(arguments))


def test_without_flags_the_settings_own_defaults_hold() -> None:
    """The command line has no defaults of its own."""
    assert settings("--upstream", URL) == ProxySettings(upstream=URL)


def test_every_flag_reaches_its_setting(tmp_path: Path) -> None:
    """Sizes and times in the units that people write."""
    key = tmp_path / "key"
    key.write_text("secret\nsecond line\n")
    given = settings(
        *("--upstream", URL, "--policy", "p.yaml", "--policy-name", "llm/chat"),
        *("--host", "::1", "--port", "0"),
        *("--admin-host", "127.0.0.1", "--admin-port", "1", "--header-timeout", "1.5"),
        *("--body-timeout", "2s", "--write-timeout", "3", "--keep-alive", "4"),
        *("--min-read-rate", "0"),
        *("--max-head", "8Ki", "--max-body", "2Mi", "--max-connections", "7"),
        *("--engine-idle-pool", "0.5", "--engine-api-key-file", str(key)),
        *("--tickets", "t", "--ticket-attempts", "2", "--ticket-retention", "60"),
        *("--ticket-wait", "5", "--ticket-count", "6", "--ticket-bytes", "1Mi"),
        *("--ticket-answer-bytes", "2Ki"),
        *("--client-credentials", "forward", "--drain-timeout", "9", "--drain-token", "t"),
        *("--log-level", "debug", "--log-format", "text", "--access-log"),
    )
    assert given == ProxySettings(
        upstream=URL,
        policy=Path("p.yaml"),
        policy_name="llm/chat",
        host="::1",
        port=0,
        admin_host="127.0.0.1",
        admin_port=1,
        header_timeout_s=1.5,
        body_timeout_s=2.0,
        write_timeout_s=3.0,
        minimum_read_bytes_per_s=0,
        keep_alive_s=4.0,
        tickets=Path("t"),
        ticket_attempts=2,
        ticket_retention_s=60.0,
        ticket_longest_wait_s=5.0,
        ticket_maximum_count=6,
        ticket_maximum_bytes=2**20,
        ticket_maximum_answer_bytes=2048,
        maximum_head_bytes=8192,
        maximum_body_bytes=2 * 2**20,
        maximum_connections=7,
        engine_idle_pool_s=0.5,
        engine_api_key="secret",
        client_credentials=ClientCredentials.FORWARD,
        drain_timeout_s=9.0,
        drain_token="t",
        log_level="debug",
        log_format="text",
        access_log=True,
    )


def test_the_environment_says_the_same_and_the_command_line_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GIVEWAY_<FLAG>, checked like the flag."""
    monkeypatch.setenv("GIVEWAY_UPSTREAM", URL)
    monkeypatch.setenv("GIVEWAY_PORT", "81")
    monkeypatch.setenv("GIVEWAY_MAX_BODY", "1Mi")
    monkeypatch.setenv("GIVEWAY_ACCESS_LOG", "true")
    given = settings("--port", "82")
    assert (given.upstream, given.port) == (URL, 82)
    assert given.maximum_body_bytes == 2**20
    assert given.access_log
    monkeypatch.setenv("GIVEWAY_PORT", "many")
    with pytest.raises(SystemExit):
        settings()


def test_what_nobody_said_in_the_environment_counts_as_not_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty value, and what Kubernetes sets for a Service that is called giveway."""
    monkeypatch.setenv("GIVEWAY_PORT", "tcp://10.96.0.7:8080")
    monkeypatch.setenv("GIVEWAY_POLICY", "")
    assert settings("--upstream", URL) == ProxySettings(upstream=URL)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "--upstream is missing"),
        (("--upstream", "localhost"), "--upstream localhost: it has to begin with http"),
        (("--upstream", URL, "--policy", "a", "--policy-document", "b"), "exclude each other"),
        (("--upstream", URL, "--policy-name", "chat"), "give --policy, --policy-document or"),
        (("--upstream", URL, "--policy", "a", "--watch-config-map", "a/b"), "exclude each other"),
        (("--upstream", URL, "--watch-config-map", "llm"), "give NAMESPACE/NAME"),
        (("--upstream", URL, "--watch-config-map", "llm/x"), "needs --kube-api"),
        (
            ("--upstream", URL, "--watch-config-map", "llm/x", "--kube-api", "host"),
            "give a URL like https://kubernetes",
        ),
        (("--upstream", URL, "--key-digests", "a"), "belongs to --policy-document"),
        (("--upstream", URL, "--engine-api-key-file", "/none"), "No such file"),
        (("--upstream", URL, "--log-level", "loud"), "give one of debug, info"),
        (("--upstream", URL, "--log-format", "xml"), "give json or text"),
    ],
)
def test_wrong_use_ends_with_2_and_says_what_is_right(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, one line, no traceback."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert run(parser.parse_args(arguments)) == 2
    output = capsys.readouterr().err
    assert output.startswith("giveway serve: ")
    assert told in output
    assert output.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        *(("--port", "70000"), ("--port", "-1"), ("--max-body", "64Q"), ("--max-body", "-5")),
        *(("--header-timeout", "0"), ("--header-timeout", "nan"), ("--max-connections", "0")),
        ("--client-credentials", "maybe"),
    ],
)
def test_values_that_make_no_sense_are_refused(arguments: tuple[str, ...]) -> None:
    """Before anything is started."""
    with pytest.raises(SystemExit) as caught:
        settings("--upstream", URL, *arguments)
    assert caught.value.code == 2


def test_what_becomes_of_keys_is_chosen_from_three(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names them."""
    with pytest.raises(SystemExit):
        settings("--upstream", URL, "--client-credentials", "maybe")
    assert "'maybe' is none of auto, forward and drop" in capsys.readouterr().err
