"""Is only the one field changed, whatever the body looks like?"""

import json

import pytest
from giveway_admission.body_splicing import (
    LONGEST_SCANNED_BYTES,
    MalformedBodyError,
    find_members,
    with_priority,
    with_usage_asked,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.support.json_texts import objects


def _load(body: bytes) -> dict[str, object]:
    loaded = json.loads(body.decode("utf-8-sig", "surrogatepass"))
    assert isinstance(loaded, dict)
    return loaded


@given(objects())
def test_members_are_those_that_json_finds(body: bytes) -> None:
    """The scan finds the same keys and, taking the last of equal ones, the same values."""
    found = {
        member.key: json.loads(
            body[member.value_start : member.value_end].decode("utf-8", "surrogatepass")
        )
        for member in find_members(body)
    }
    assert found == _load(body)


@given(objects())
def test_asking_for_usage_changes_that_field_alone(body: bytes) -> None:
    """The result parses to the same object with stream_options.include_usage true (A25)."""
    expected = _load(body)
    options = expected.get("stream_options")
    if options is None:
        expected["stream_options"] = {"include_usage": True}
    elif isinstance(options, dict):
        expected["stream_options"] = {**options, "include_usage": True}
    changed = with_usage_asked(body)
    assert _load(changed) == expected


@given(objects())
def test_asking_for_usage_keeps_all_other_bytes(body: bytes) -> None:
    """What is taken out again leaves the very bytes that came, if there was no stream_options."""
    if "stream_options" in _load(body):
        body = b'{"a":[1, 2],\n "b":"stream_options"}'
    changed = with_usage_asked(body)
    inserted = b'"stream_options":{"include_usage":true}'
    at = changed.index(inserted)
    rest = changed[:at] + changed[at + len(inserted) :]
    assert body in (rest, rest[:at] + rest[at + 1 :])


@given(objects(), st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_our_priority_is_the_only_one(body: bytes, priority: int) -> None:
    """The client's priority is gone, however often and however it was written."""
    changed = with_priority(body, priority)
    assert _load(changed) == {**_load(body), "priority": priority}
    assert sum(member.key == "priority" for member in find_members(changed)) == 1


@given(objects())
def test_a_removed_priority_is_gone_from_all_places(body: bytes) -> None:
    """With None no member of that name is left, and nothing else is touched."""
    expected = _load(body)
    expected.pop("priority", None)
    changed = with_priority(body, None)
    assert _load(changed) == expected
    assert all(member.key != "priority" for member in find_members(changed))


@given(objects())
def test_a_body_without_priority_stays_as_it_is(body: bytes) -> None:
    """Nothing to remove: the same bytes."""
    if "priority" not in _load(body):
        assert with_priority(body, None) == body


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", b'{"stream_options":{"include_usage":true}}'),
        (b" { } ", b' {"stream_options":{"include_usage":true} } '),
        (b'{"a":1}', b'{"stream_options":{"include_usage":true},"a":1}'),
        (b'{"stream_options":null}', b'{"stream_options":{"include_usage":true}}'),
        (b'{"stream_options": {} }', b'{"stream_options": {"include_usage":true} }'),
        (
            b'{"stream_options":{"include_usage": false, "continuous_usage_stats":true}}',
            b'{"stream_options":{"include_usage": true, "continuous_usage_stats":true}}',
        ),
        (
            b'{"stream_options":{"include_usage":true}}',
            b'{"stream_options":{"include_usage":true}}',
        ),
        (b'{"stream_options":"no"}', b'{"stream_options":"no"}'),
        (
            b'{"stream_options":{"include_usage":true},"stream_options":null}',
            b'{"stream_options":{"include_usage":true},"stream_options":{"include_usage":true}}',
        ),
        (b'\xef\xbb\xbf{"a":1}', b'\xef\xbb\xbf{"stream_options":{"include_usage":true},"a":1}'),
    ],
)
def test_usage_is_asked_for_with_the_smallest_change(body: bytes, expected: bytes) -> None:
    """One table of every form that stream_options can have."""
    assert with_usage_asked(body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"priority":1}', b"{}"),
        (b'{"priority":1,"a":2}', b'{"a":2}'),
        (b'{"a":2 , "priority":1}', b'{"a":2}'),
        (b'{"a":2 , "b":3, "priority":1, "c":4 }', b'{"a":2 , "b":3,"c":4 }'),
        (b'{"priority":1,"priority":2}', b"{}"),
        (b'{"x":{"priority":1}}', b'{"x":{"priority":1}}'),
        (b'{"service_tier":"priority"}', b'{"service_tier":"priority"}'),
        (b'{"\\u0070riority":1,"a":2}', b'{"a":2}'),
    ],
)
def test_priority_is_removed_with_its_comma(body: bytes, expected: bytes) -> None:
    """One table of every place that priority can have."""
    assert with_priority(body, None) == expected


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"null", b"{", b'{"priority"', b'{"priority":', b'{"priority":1'),
        *(b'{"priority":1,', b'{"priority":"', b'{"priority":[', b"{priority:1}"),
        *(b'{"priority" 1}', b'{"priority":}', b'{"priority":1 2}'),
    ],
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    """A body that is cut or wrong raises this one error."""
    with pytest.raises(MalformedBodyError):
        list(find_members(body))


@given(objects(), st.one_of(st.none(), st.integers(min_value=-9, max_value=9)))
def test_in_a_long_body_our_priority_is_the_last(body: bytes, priority: int | None) -> None:
    """Without a scan, and to the engine the same: of equal keys the last one counts."""
    at = body.index(b"{") + 1
    comma = b"" if body[at:].strip() == b"}" else b","
    body = b'%b"long":"%b"%b%b' % (body[:at], b"x" * LONGEST_SCANNED_BYTES, comma, body[at:])
    changed = with_priority(body, priority)
    assert _load(changed) == {**_load(body), "priority": priority or 0}
    inserted = b',"priority":%d' % (priority or 0)
    assert changed.replace(inserted, b"", 1) == body or changed.count(inserted) > 1


@pytest.mark.parametrize("end", [b"", b'"', b"]", b"x"])
def test_a_long_body_that_is_no_object_stays(end: bytes) -> None:
    """The engine will refuse it, and nothing of ours makes it valid."""
    body = b'{"x":"' + b"x" * LONGEST_SCANNED_BYTES + end
    assert with_priority(body, 5) == body
    empty = b"{" + b" " * LONGEST_SCANNED_BYTES + b"}"
    assert with_priority(empty, 5) == empty


def test_numbers_that_only_python_knows_are_stepped_over() -> None:
    """NaN and Infinity, which the engine takes."""
    body = b'{"a":NaN, "priority":-Infinity ,"b":[NaN]}'
    assert with_priority(body, None) == b'{"a":NaN,"b":[NaN]}'


@given(st.binary(max_size=80))
def test_any_bytes_give_a_body_or_the_one_error(body: bytes) -> None:
    """No other exception, whatever the bytes."""
    for change in (with_usage_asked, lambda text: with_priority(text, 1)):
        try:
            changed = change(b'{"priority' + body)
        except MalformedBodyError:
            continue
        assert changed.startswith(b"{")


@pytest.mark.parametrize(
    "unit", [b"[", b"{", b'{"', b'\\"', b'"', b'"\\', b"[]", b'{"a":', b'"a":1,', b"\\u0070"]
)
@pytest.mark.parametrize("begin", [b"[", b'"'])
def test_a_quarter_megabyte_of_anything_is_scanned_in_one_pass(begin: bytes, unit: bytes) -> None:
    """No pattern goes back over what it has read (G11); a quadratic scan would take hours here."""
    body = b'{"priority":1,"x":' + begin + unit * (LONGEST_SCANNED_BYTES // len(unit) - 20)
    with pytest.raises(MalformedBodyError):
        list(find_members(body, most_steps=len(body)))
