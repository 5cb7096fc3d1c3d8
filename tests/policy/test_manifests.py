"""YAML to plain values with lines, whatever the text is."""

from itertools import count

import pytest
import yaml
from giveway_policy import manifests
from giveway_policy.manifests import Manifest, ManifestError, read_manifests
from hypothesis import given
from hypothesis import strategies as st


def _one(text: str) -> Manifest:
    (found,) = read_manifests(text)
    assert isinstance(found, Manifest), found
    return found


def _error(text: str) -> ManifestError:
    (found,) = read_manifests(text)
    assert isinstance(found, ManifestError), found
    return found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64", 64),
        ("-1", -1),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("off", False),
        ("null", None),
        ("~", None),
        ("'64'", "64"),
        ('"true"', "true"),
        ("!!str 64", "64"),
        ("! 64", "64"),
        ("2025-01-01", "2025-01-01"),  # no dates: JSON has none
        ("12:30:00", "12:30:00"),  # no sexagesimal numbers
        ("0777", "0777"),  # not octal, and no whole number either
        ("1" * 40, "1" * 40),  # too long for a number: refused later as text
        ("512Mi", "512Mi"),
        ("|\n  a\n  b\n", "a\nb\n"),
        ("[a, {b: c}]", ["a", {"b": "c"}]),
        ("'': x", {"": "x"}),
        ("on: x", {"on": "x"}),
    ],
)
def test_words_mean_what_they_mean_to_kubectl(text: str, value: object) -> None:
    assert _one(text).value == value


def test_each_path_has_its_line() -> None:
    """Of the key for a field, of the value for an entry; from 1; over several documents."""
    first, second = read_manifests("a: 1\nb:\n- c: x\n  d: y\n- e\n---\n# words\n\nf:\n  g: z\n")
    assert isinstance(first, Manifest)
    assert isinstance(second, Manifest)
    assert first.lines[("b",)] == 2
    assert first.lines[("b", 0, "d")] == 4
    assert first.lines[("b", 1)] == 5
    assert second.lines == {(): 9, ("f",): 9, ("f", "g"): 10}


def test_a_broken_document_spoils_none_of_its_neighbours() -> None:
    """D12: of three documents the first and the last are read."""
    first, second, third = read_manifests("a: 1\n---\nb: [\n---\nc: 3\n")
    assert isinstance(first, Manifest)
    assert isinstance(second, ManifestError)
    assert isinstance(third, Manifest)
    assert second.line in (3, 4)
    assert third.value == {"c": 3}


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# only words\n", "---\n---\n# x\n---", "%YAML 1.1\n---\n", "...\n"]
)
def test_nothing_is_no_document(text: str) -> None:
    assert list(read_manifests(text)) == []


def test_a_dash_inside_text_separates_nothing() -> None:
    assert _one("a: |\n  ---\n  b\n").value == {"a": "---\nb\n"}


@pytest.mark.parametrize(
    ("text", "line", "path"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, ("a",)),
        ("spec:\n  classes:\n  - weight: 1\n    weight: 2\n", 4, ("spec", "classes", 0, "weight")),
        ("{a: 1, 'a': 2}", 1, ("a",)),
        ("1: x\n'1': y\n", 2, ("1",)),
    ],
)
def test_a_key_that_stands_twice_is_refused(
    text: str, line: int, path: tuple[str | int, ...]
) -> None:
    """D09: which of the two would hold is a matter of luck."""
    error = _error(text)
    assert "stands twice" in error.reason
    assert (error.line, error.path) == (line, path)


def test_aliases_and_merges_work() -> None:
    text = "base: &b {x: 1, y: 2}\nhere: {<<: *b, y: 3}\nlist: [*b, *b]\n"
    value = _one(text).value
    assert isinstance(value, dict)
    assert value["here"] == {"x": 1, "y": 3}
    assert value["list"] == [{"x": 1, "y": 2}] * 2


def _bomb(levels: int) -> str:
    """Each level holds nine of the one before: 9 ^ levels values in a few hundred bytes."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


def test_an_alias_bomb_is_refused_before_it_takes_memory() -> None:
    """Nine levels stand for 400 million values; the bound is half a million."""
    assert "aliases written out" in _error(_bomb(9)).reason
    assert isinstance(_one(_bomb(4)).value, dict)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 100_000, "nest"),
        ("- " * 100_000, "nested deeper"),
        ("{a: " * 1000, "nested deeper"),
        ("? " * 1000, "a key has to be plain text"),
        ("a: &a [*a]", "nothing before it is called &a"),
        ("a: *b", "nothing before it is called &b"),
        ("a: !!python/object:os.system x", "is not supported"),
        ("a: !!binary aGk=", "is not supported"),
        ("a: !local {}", "is not supported"),
        ("{[1]: x}", "a key has to be plain text"),
        ("a: 'x", "not YAML"),
        ("\ta: 1", "not YAML"),
        ("a: \x00", "not YAML"),
        ('a: "\\ud800"', ""),
        ("a: 1\n...\nb: 2", "not YAML"),
        ("a: b: c", "not YAML"),
        ("<<: 1", "takes a mapping"),
    ],
    ids=count(),
)
def test_what_cannot_be_read_is_one_error_with_a_fix(text: str, says: str) -> None:
    """D07, D09: it says what, where, and what to do."""
    error = _error(text)
    assert says in error.reason
    assert error.fix
    assert error.line == 1 or text.count("\n")


@given(text=st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """D07: nothing is raised."""
    for found in read_manifests(text):
        assert isinstance(found, Manifest | ManifestError)


@given(text=st.text(alphabet="ab:-[]{}&*!|>'\"# \n\t,?%<0.~\\x", max_size=60))
def test_any_yaml_like_text_is_read_or_refused(text: str) -> None:
    """D07: the same for text made of YAML's own signs."""
    for found in read_manifests(text):
        assert isinstance(found, Manifest | ManifestError)


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x85"), max_size=20)
"""PyYAML itself writes U+0085 as another line end."""
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.slow
@given(value=plain)
def test_what_another_program_writes_is_read_as_it_was_meant(value: object) -> None:
    """Values written by PyYAML come back equal."""
    text = yaml.safe_dump(value, allow_unicode=True)
    assert _one(text).value == value


def test_both_parsers_give_the_same_values_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """libyaml is for speed alone."""
    text = "a: &x [1, 'two', true]\nb:\n  c: *x\n  d: |\n    e\n"
    fast = _one(text)
    monkeypatch.setattr(manifests, "_LOADER", yaml.SafeLoader)
    assert _one(text) == fast
