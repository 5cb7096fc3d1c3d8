"""Logs: one event, one line, and nothing in it that must not be there."""

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest
from aiohttp.http_exceptions import BadStatusLine
from giveway_admission.logs import (
    FIELD_LIMIT,
    JSONLines,
    LogFormat,
    clean_text,
    configure_logging,
    log_event,
)
from hypothesis import given
from hypothesis import strategies as st

CANARY = "CANARYcanary0123456789"
LEAKS = (
    f"Authorization: Bearer {CANARY}",
    f"authorization: bearer {CANARY}",
    f"Authorization: Basic {CANARY}==",
    f"{{'x-api-key': '{CANARY}'}}",
    f'{{"api_key": "{CANARY}"}}',
    f"api-key={CANARY}",
    f"Cookie: {CANARY}",
    f"GET /v1/models?key={CANARY}&x=1",
    f"GET /v1/models?api_key={CANARY}",
    f"http://user:{CANARY}@host/path",
    f"http://{CANARY}@host/path",
    f"key was sk-{CANARY}",
    f"sk-proj-{CANARY}",
    f"hf_{CANARY}",
    f"ghp_{CANARY}",
    f"eyJ{CANARY}.eyJ{CANARY}.{CANARY}",
    f"X-Giveway-Drain-Token: {CANARY}",
    f"password={CANARY}",
    f"client_secret: {CANARY}",
)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Leave the process's logging as it was found."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in ("aiohttp.access", "asyncio")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


Read = Callable[[], list[dict[str, object]]]


@pytest.fixture
def lines() -> Read:
    """JSON logging into memory; call it to read what was written."""
    stream = io.StringIO()
    configure_logging("debug", LogFormat.JSON, stream=stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_event_is_one_json_line_with_its_fields(lines: Read) -> None:
    """What a log collector expects."""
    logger = logging.getLogger("giveway_admission.test")
    log_event(logger, logging.WARNING, "engine down", host="127.0.0.1", tries=3, up=False, of=None)
    (entry,) = lines()
    time = entry.pop("time")
    assert isinstance(time, str)
    assert time.endswith("+00:00")
    assert entry == {
        "level": "warning",
        "event": "engine down",
        "logger": "giveway_admission.test",
        "host": "127.0.0.1",
        "tries": 3,
        "up": False,
        "of": None,
    }


@pytest.mark.parametrize("log_format", list(LogFormat))
@given(text=st.text(max_size=50), limit=st.booleans())
def test_any_text_stays_on_one_line(log_format: LogFormat, text: str, limit: bool) -> None:
    """G10: no line end of any kind, no escape sequence for a terminal, in event or field."""
    stream = io.StringIO()
    configure_logging("debug", log_format, stream=stream)
    event = text if limit else "event"
    log_event(
        logging.getLogger("t"), logging.INFO, event, field=text, many=[text], deep={text: text}
    )
    written = stream.getvalue()
    assert written.endswith("\n")
    assert len(written.splitlines()) == 1
    assert written[:-1].isprintable() or all(
        character.isprintable() or ord(character) >= 0xA0 for character in written[:-1]
    )


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("log_format", list(LogFormat))
def test_no_credential_is_ever_written(leak: str, log_format: LogFormat) -> None:
    """G03: at every level, as event, field, argument, nested, or in an exception."""
    stream = io.StringIO()
    configure_logging("debug", log_format, stream=stream)
    logger = logging.getLogger("giveway_admission.test")
    for level in (logging.DEBUG, logging.INFO, logging.ERROR):
        log_event(logger, level, f"event {leak}", a=leak, b=[leak], c={"k": leak, leak: 1})
        logger.log(level, "other library: %s", leak)
    try:
        dict[str, int]()[leak]
    except KeyError as error:
        log_event(logger, logging.ERROR, "failed", error=error)
        logger.exception("crashed")
    log_event(logger, logging.ERROR, "failed", error=OSError(5, leak))
    assert stream.getvalue().count("\n") == 9
    assert CANARY not in stream.getvalue()


def test_exception_is_its_type_and_place_without_its_message(lines: Read) -> None:
    """Parsers quote what they were given: a prompt must not come into the log that way."""
    logger = logging.getLogger("t")
    try:
        int("the prompt of somebody")
    except ValueError:
        logger.exception("could not read")
    (entry,) = lines()
    assert "prompt" not in json.dumps(entry)
    assert str(entry["error"]).startswith("ValueError at test_logs.py:")


def test_system_error_keeps_its_text(lines: Read) -> None:
    """`Connection refused` is the system's own word, and what a person needs."""
    log_event(
        logging.getLogger("t"),
        logging.ERROR,
        "failed",
        error=ConnectionRefusedError(111, "Connection refused"),
    )
    (entry,) = lines()
    assert entry["error"] == "ConnectionRefusedError: Connection refused"


def test_bytes_are_told_by_their_number_alone(lines: Read) -> None:
    """Bodies are bytes: what is in them is nobody's business."""
    log_event(logging.getLogger("t"), logging.INFO, "event", body=b"the prompt")
    assert lines()[0]["body"] == "<10 bytes>"


def test_long_fields_are_cut(lines: Read) -> None:
    """G10: six kilobytes of request id are one short field."""
    log_event(
        logging.getLogger("t"), logging.INFO, "event", name="x" * 6000, many=list(range(1000))
    )
    (entry,) = lines()
    name, many = entry["name"], entry["many"]
    assert isinstance(name, str)
    assert len(name) == FIELD_LIMIT
    assert isinstance(many, list)
    assert len(many) == 32


def test_credential_at_the_cut_is_not_half_shown() -> None:
    """Cutting comes after blotting out."""
    text = "x" * (FIELD_LIMIT - 10) + " Bearer " + CANARY
    assert "CANARY"[:3] not in clean_text(text)[FIELD_LIMIT - 3 :]


def test_field_cannot_replace_what_every_line_has(lines: Read) -> None:
    """A field called `level` does not forge the level."""
    log_event(logging.getLogger("t"), logging.INFO, "event", logger_name="x", time="never")
    assert lines()[0]["time"] != "never"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_has_not_are_words(lines: Read, value: float) -> None:
    """Every line is JSON for every reader."""
    log_event(logging.getLogger("t"), logging.INFO, "event", value=value)
    assert lines()[0]["value"] == str(value)


def test_record_whose_arguments_do_not_fit_is_still_written() -> None:
    """Another library's mistake does not raise inside logging."""
    record = logging.LogRecord("t", logging.INFO, "", 0, "%d of %s", ("x",), None)
    assert json.loads(JSONLines().format(record))["event"] == "%d of %s"


def test_levels_below_the_set_one_are_left_out() -> None:
    """`warning` means warning."""
    stream = io.StringIO()
    configure_logging("warning", stream=stream)
    log_event(logging.getLogger("t"), logging.INFO, "quiet")
    log_event(logging.getLogger("t"), logging.WARNING, "loud")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_request_lines_of_the_web_server_are_left_out_at_every_level(lines: Read) -> None:
    """They would hold paths and queries."""
    logging.getLogger("aiohttp.access").info("GET /?key=abc")
    assert lines() == []


def test_bytes_that_are_no_http_are_not_told_as_an_error(lines: Read) -> None:
    """A port scan of the admin port wakes nobody; any other error of the server is told."""
    logger = logging.getLogger("aiohttp.server")
    for error in (BadStatusLine("\x16\x03"), ValueError("ours")):
        try:
            raise error
        except (BadStatusLine, ValueError):
            logger.exception("Error handling request")
    assert [str(line["error"]).split(" ")[0] for line in lines()] == ["ValueError"]


def test_configuring_again_does_not_double_the_lines() -> None:
    """Once per event, however often it was set up."""
    first, second = io.StringIO(), io.StringIO()
    configure_logging("info", stream=first)
    configure_logging("info", stream=second)
    log_event(logging.getLogger("t"), logging.INFO, "event")
    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1


def test_text_format_is_for_reading() -> None:
    """Time, level, event, then the fields."""
    stream = io.StringIO()
    configure_logging("info", LogFormat.TEXT, stream=stream)
    log_event(logging.getLogger("t"), logging.INFO, "engine answers", after_s=1.5)
    assert stream.getvalue().split(" ", 1)[1] == "info engine answers after_s=1.5\n"


@pytest.mark.parametrize(
    "text", ["key value", "a token of 3 words", "tokens: many", "basic idea", "x = y", "sk", "40 %"]
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    """What looks like no credential is left alone."""
    assert clean_text(text) == text
