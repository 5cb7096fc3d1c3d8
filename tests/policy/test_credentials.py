"""API keys: digested and forgotten."""

import hashlib
from itertools import count
from pathlib import Path

import pytest
from giveway_policy.credentials import digest_key, read_keys
from giveway_policy.faults import FaultKind
from giveway_policy.tenants import TenantPrioritySpec

from tests.policy.policy_texts import tenant_with, valid_tenant


def _tenant(*files: str) -> TenantPrioritySpec:
    recognized = [{"apiKey": {"keyFile": file}} for file in files]
    return valid_tenant(tenant_with(recognizedBy=recognized)).spec


def test_each_line_is_a_key(tmp_path: Path) -> None:
    """Blank lines and comments are skipped, as are spaces, line ends and marks of other systems."""
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "acme").write_bytes(
        b"\xef\xbb\xbfkey-number-one\r\n\n  # words\n  key-number-two  \nkey-number-one"
    )
    found = read_keys(_tenant("keys/acme"), tmp_path)
    expected = {hashlib.sha256(key).hexdigest() for key in (b"key-number-one", b"key-number-two")}
    assert set(found.digests) == expected
    assert list(found.digests) == sorted(expected)
    assert found.files == (tmp_path / "keys" / "acme",)
    assert "key-number" not in repr(found)


def test_keys_of_several_files_are_all_the_tenants(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("first-key-of-acme")
    (tmp_path / "b").write_text("second-key-of-acme")
    found = read_keys(_tenant("a", str(tmp_path / "b")), tmp_path)
    assert set(found.digests) == {
        digest_key(b"first-key-of-acme"),
        digest_key(b"second-key-of-acme"),
    }


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"short", "line 1 of the key file is no key"),
        (b"# words\n\ntwo words here\n", "line 3 of the key file is no key"),
        (b"k" * 513, "line 1 of the key file is no key"),
        ("schlüssel-nummer-eins".encode(), "line 1 of the key file is no key"),
        (b"\x00" * 20, "line 1 of the key file is no key"),
        (b"long-enough\n" * 100_000, "larger than 1 MiB"),
    ],
    ids=count(),
)
def test_what_is_no_key_is_a_fault_that_does_not_show_it(
    tmp_path: Path, content: bytes, says: str
) -> None:
    """G03: the line is named, not what stands on it."""
    (tmp_path / "keys").write_bytes(content)
    (problem,) = read_keys(_tenant("keys"), tmp_path).problems
    assert says in problem.reason
    assert problem.kind is FaultKind.CREDENTIALS
    assert "words here" not in problem.reason + problem.fix


@pytest.mark.parametrize("file", ["missing", ".", "\x00", "a" * 1000])
def test_a_key_file_that_cannot_be_read_is_a_fault(tmp_path: Path, file: str) -> None:
    (problem,) = read_keys(_tenant(file), tmp_path).problems
    assert "the key file cannot be read" in problem.reason
    assert problem.path == ("spec", "recognizedBy", 0, "apiKey", "keyFile")


def test_an_empty_key_file_revokes_all_keys(tmp_path: Path) -> None:
    """It is no fault, or else the last good keys would stay in force."""
    (tmp_path / "keys").write_text("# all revoked\n")
    found = read_keys(_tenant("keys"), tmp_path)
    assert (found.digests, found.problems) == ((), ())
    assert [text for _, text in found.notes] == ["the key file holds no key"]


def test_a_secret_is_unknown_outside_kubernetes(tmp_path: Path) -> None:
    """The same file is applied with kubectl and given to a proxy on a laptop: a note, no fault."""
    reference = {"apiKey": {"secretRef": {"namespace": "llm", "name": "acme-keys"}}}
    found = read_keys(valid_tenant(tenant_with(recognizedBy=[reference])).spec, tmp_path)
    assert found.problems == ()
    assert "llm/acme-keys" in found.notes[0][1]
