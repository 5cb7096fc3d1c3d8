"""Files and folders to resources: ours, not ours, and not readable."""

import os
from pathlib import Path

import pytest
from giveway_policy.faults import FaultKind
from giveway_policy.loading import load_path
from giveway_policy.reading import LARGEST_FILE_BYTES, read_path
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.policy_texts import BOTH, POLICY, TENANT


def test_a_folder_gives_its_manifests_in_the_order_of_names(tmp_path: Path) -> None:
    """YAML and JSON; nothing hidden, nothing below, nothing else: a mounted ConfigMap as it is."""
    (tmp_path / "b.yml").write_text(TENANT)
    (tmp_path / "a.yaml").write_text(POLICY)
    (tmp_path / "c.json").write_text('{"kind": "ConfigMap", "apiVersion": "v1"}')
    (tmp_path / ".hidden.yaml").write_text("[")
    (tmp_path / "keys.txt").write_text("[")
    (tmp_path / "below.yaml").mkdir()
    reading = read_path(tmp_path)
    assert [str(each.key) for each in reading.resources] == [
        "SLOPolicy llm/chat",
        "TenantPriority acme",
    ]
    assert reading.faults == []
    assert [str(note) for note in reading.notes] == [
        f"{tmp_path}/c.json:1: ignored: kind ConfigMap"
    ]


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("kind: Deployment\napiVersion: apps/v1\n", "ignored: kind Deployment"),
        ("resources: [a.yaml]\n", "ignored: it has no kind"),
        ("- a\n- b\n", "ignored: it is not a resource"),
        ("just words\n", "ignored: it is not a resource"),
        ("kind: 5\n", "ignored: kind 5"),
    ],
)
def test_what_is_not_ours_is_ignored_with_a_note(tmp_path: Path, text: str, note: str) -> None:
    """People keep other manifests in the same folder."""
    (tmp_path / "x.yaml").write_text(text)
    reading = read_path(tmp_path)
    assert (reading.resources, reading.faults) == ([], [])
    assert [each.text for each in reading.notes] == [note]


@pytest.mark.parametrize(
    ("head", "path", "fix"),
    [
        ("apiVersion: giveway.dev/v1\nkind: SLOPolicy", "apiVersion", "giveway.dev/v1alpha1"),
        ("apiVersion: giveway.io/v1alpha1\nkind: SLOPolicy", "apiVersion", "giveway.dev/v1alpha1"),
        ("apiVersion: 1\nkind: TenantPriority", "apiVersion", "giveway.dev/v1alpha1"),
        ("kind: SLOPolicy", "apiVersion", "giveway.dev/v1alpha1"),
        ("apiVersion: giveway.dev/v1alpha1\nkind: SloPolicy", "kind", "write SLOPolicy"),
        ("apiVersion: x/v1\nkind: TenantPriorities", "kind", "write TenantPriority"),
        ("apiVersion: giveway.dev/v1alpha1", "kind", "SLOPolicy or TenantPriority"),
        ("apiVersion: giveway.dev/v1alpha1\nkind: Nonsense", "kind", "or TenantPriority"),
    ],
)
def test_a_misnamed_resource_is_a_fault_and_not_somebody_elses(
    tmp_path: Path, head: str, path: str, fix: str
) -> None:
    """D09: a typo in the head must not turn a policy off."""
    (tmp_path / "x.yaml").write_text(f"{head}\nmetadata: {{name: chat}}\n")
    (fault,) = read_path(tmp_path).faults
    assert (fault.path, fault.kind) == (path, FaultKind.SCHEMA)
    assert fix in fault.fix


def test_a_list_is_what_is_in_it(tmp_path: Path) -> None:
    """`kubectl get -o yaml` writes a List; lines and paths are those of the items."""
    items = "".join(
        f"- {line}\n" if number == 0 else f"  {line}\n"
        for text in (POLICY, TENANT)
        for number, line in enumerate(text.splitlines())
    )
    (tmp_path / "x.yaml").write_text(f"apiVersion: v1\nkind: List\nitems:\n{items}")
    reading = read_path(tmp_path)
    assert [each.key.kind for each in reading.resources] == ["SLOPolicy", "TenantPriority"]
    # three lines of the list, ten of the policy, then the tenant: its spec is its fourth
    assert reading.resources[0].origin.line(("spec",)) == 3 + 4
    tenant_starts = 3 + len(POLICY.splitlines())
    assert reading.resources[1].origin.line(("spec",)) == tenant_starts + 4


@pytest.mark.parametrize(
    ("data", "says", "line"),
    [
        (b"\xff\xfea\x00", "not UTF-8", 1),
        (b"a: 1\nb: \xe9\n", "not UTF-8", 2),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "not UTF-8", 1),
        (b"#" * (5 * 2**20), "larger than 4 MiB", None),
    ],
    ids=["utf-16", "latin-1", "binary", "5 MB"],
)
def test_an_unreadable_file_is_a_fault(
    tmp_path: Path, data: bytes, says: str, line: int | None
) -> None:
    """D07: garbage, another encoding, 5 MB."""
    (tmp_path / "x.yaml").write_bytes(data)
    (fault,) = read_path(tmp_path).faults
    assert says in fault.reason
    assert (fault.kind, fault.line) == (FaultKind.UNREADABLE, line)
    assert fault.fix


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    text = BOTH.replace("\n", "\r\n")
    (tmp_path / "x.yaml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    loading = load_path(tmp_path)
    assert loading.faults == []
    assert (len(loading.policies), len(loading.tenants)) == (1, 1)


def test_what_is_not_there_or_no_file_is_a_fault(tmp_path: Path) -> None:
    """D07: a missing path, a dangling link, a pipe, which would block for ever."""
    (fault,) = read_path(tmp_path / "missing.yaml").faults
    assert "no such file" in fault.reason
    (tmp_path / "dangling.yaml").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.yaml")
    reasons = [each.reason for each in read_path(tmp_path).faults]
    assert reasons == ["no such file or directory", "it is not a regular file"]


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    for number in range(2001):
        (tmp_path / f"{number}.yaml").touch()
    (fault,) = read_path(tmp_path).faults
    assert "more than 2000 manifests" in fault.reason


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    padding = "#" * 1000 + "\n"
    text = BOTH + padding * ((LARGEST_FILE_BYTES - len(BOTH)) // len(padding))
    (tmp_path / "x.yaml").write_text(text)
    assert len(read_path(tmp_path).resources) == 2


@pytest.mark.slow
@given(data=st.binary(max_size=300))
def test_any_bytes_in_a_file_raise_nothing(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """D07: alone, before, and behind a good resource."""
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    for content in (data, POLICY.encode() + b"---\n" + data, data + b"\n---\n" + TENANT.encode()):
        file.write_bytes(content)
        loading = load_path(file)
        assert all(str(fault) for fault in loading.faults)


@pytest.mark.slow
@given(
    start=st.integers(min_value=0, max_value=len(BOTH)),
    length=st.integers(min_value=0, max_value=40),
    replacement=st.text(alphabet="ab:-[]{}&*!|'\"# \n0\x00é", max_size=10),
)
def test_any_edit_of_a_good_file_raises_nothing(
    start: int, length: int, replacement: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """D07: whatever somebody does to it in an editor."""
    file = tmp_path_factory.getbasetemp() / "edited.yaml"
    file.write_text(BOTH[:start] + replacement + BOTH[start + length :])
    loading = load_path(file)
    for fault in loading.faults:
        assert fault.file == str(file)
        assert fault.fix
