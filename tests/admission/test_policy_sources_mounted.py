"""Policy documents in a mounted ConfigMap: the highest valid one holds, whatever comes after."""

import gzip
from itertools import count
from pathlib import Path

import pytest
from giveway_admission.mounted_documents import MountedDocuments
from giveway_admission.policy_sources import NOTHING, SourceReading
from giveway_policy.defaults import default_document
from giveway_policy.faults import FaultKind

from tests.admission.policy_folders import MountedConfigMap, document_text


class Follower:
    """Reads the mounted folder again and again, as a proxy does."""

    def __init__(self, folder: Path, *, policy_name: str | None = None) -> None:
        self.source = MountedDocuments(folder, policy_name=policy_name)
        self.last: SourceReading = NOTHING

    def read(self) -> tuple[int, int]:
        """Epoch and generation in force."""
        self.last = self.source.read(self.last)
        assert self.last.document is not None
        return self.last.document.order

    @property
    def faults(self) -> list[str]:
        return [fault.kind.value for fault in self.last.faults]


@pytest.fixture
def mounted(tmp_path: Path) -> MountedConfigMap:
    return MountedConfigMap(tmp_path / "policy")


def test_the_built_in_default_holds_until_a_document_appears(tmp_path: Path) -> None:
    """D08: no folder, an empty folder, another program's file, and then a document."""
    follower = Follower(tmp_path / "policy")
    assert follower.read() == (0, 0)
    assert follower.last.document == default_document()
    (fault,) = follower.last.faults
    assert "no such file" in fault.reason
    mounted = MountedConfigMap(tmp_path / "policy")
    mounted.swap({"words.txt": "x"})
    follower.read()
    (fault,) = follower.last.faults
    assert fault.reason == "there is no policy document in it yet"
    mounted.swap({"chat.json": document_text()})
    assert follower.read() == (1, 1)
    assert follower.faults == []


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ("", FaultKind.UNREADABLE),
        ("{", FaultKind.UNREADABLE),
        ("\x00" * 100, FaultKind.UNREADABLE),
        (document_text(generation=2)[:-40], FaultKind.UNREADABLE),
        ("{}", FaultKind.FORMAT),
        (document_text(generation=2).replace('"format":1', '"format":2'), FaultKind.FORMAT),
        (document_text(generation=2).replace('"mode"', '"mood"'), FaultKind.SCHEMA),
        (document_text(generation=2).replace('"weight":70', '"weight":71'), FaultKind.HASH),
        (document_text(epoch=0, generation=9), FaultKind.OLDER),
        (document_text(share=0.5), FaultKind.OLDER),
    ],
    ids=count(),
)
def test_a_bad_document_keeps_the_last_good_one(
    mounted: MountedConfigMap, broken: str, kind: FaultKind
) -> None:
    """D01, D07: then the former content clears the fault, and a newer one takes effect."""
    follower = Follower(mounted.folder)
    mounted.swap({"chat.json": document_text()})
    assert follower.read() == (1, 1)
    mounted.swap({"chat.json": broken})
    assert follower.read() == (1, 1)
    assert follower.faults == [kind.value]
    assert follower.last.document is not None
    assert follower.last.document.share == 1.0
    mounted.swap({"chat.json": document_text()})
    assert follower.read() == (1, 1)
    assert follower.faults == []
    mounted.swap({"chat.json": document_text(generation=2)})
    assert follower.read() == (1, 2)
    assert follower.faults == []


def test_a_policy_that_is_called_like_the_default_is_a_policy_like_others(
    mounted: MountedConfigMap,
) -> None:
    """An older document of it does not replace the newer one."""
    follower = Follower(mounted.folder)
    mounted.swap({"chat.json": document_text(name="built-in", generation=2)})
    assert follower.read() == (1, 2)
    mounted.swap({"chat.json": document_text(name="built-in")})
    assert follower.read() == (1, 2)
    assert follower.faults == ["older"]


def test_the_highest_valid_document_wins(mounted: MountedConfigMap) -> None:
    """Beside broken and older ones; a new epoch counts more than any generation."""
    follower = Follower(mounted.folder)
    files = {
        "a.json": document_text(generation=7),
        "b.json": document_text(epoch=2, generation=1),
        "c.json": "{",
    }
    mounted.swap(files)
    assert follower.read() == (2, 1)
    assert follower.faults == ["unreadable"]


def test_a_document_that_is_gone_stays_in_force(mounted: MountedConfigMap) -> None:
    """ConfigMap deleted: last good kept, and said so."""
    follower = Follower(mounted.folder)
    mounted.swap({"chat.json": document_text()})
    follower.read()
    mounted.swap({})
    assert follower.read() == (1, 1)
    assert follower.faults == ["unreadable"]


def test_a_packed_document_is_read(mounted: MountedConfigMap) -> None:
    mounted.folder.joinpath("chat.json.gz").write_bytes(gzip.compress(document_text().encode()))
    follower = Follower(mounted.folder)
    assert follower.read() == (1, 1)
    assert follower.faults == []


def test_one_of_several_policies_is_chosen_by_name(mounted: MountedConfigMap) -> None:
    """A newer document of another policy is not ours."""
    mounted.swap(
        {
            "chat.json": document_text(),
            "other.json": document_text(name="other", generation=5),
        }
    )
    follower = Follower(mounted.folder, policy_name="chat")
    assert follower.read() == (1, 1)
    assert follower.faults == []


def test_several_policies_without_a_name_are_a_fault(mounted: MountedConfigMap) -> None:
    """What was in force goes on following its own policy."""
    follower = Follower(mounted.folder)
    mounted.swap({"chat.json": document_text()})
    follower.read()
    other = document_text(name="other", generation=5)
    mounted.swap({"chat.json": document_text(generation=2), "other.json": other})
    assert follower.read() == (1, 2)
    assert "llm/chat, llm/other" in follower.last.faults[0].reason


def test_a_pod_that_moves_to_another_policy_takes_it_whatever_its_number(
    mounted: MountedConfigMap,
) -> None:
    """Only documents of one policy have an order among them."""
    follower = Follower(mounted.folder)
    mounted.swap({"chat.json": document_text(epoch=5)})
    follower.read()
    mounted.swap({"other.json": document_text(name="other")})
    assert follower.read() == (1, 1)
    assert follower.faults == []


def test_a_swap_changes_the_fingerprint(mounted: MountedConfigMap) -> None:
    """D03: also to content of the same length, with the former folder gone at once."""
    source = MountedDocuments(mounted.folder)
    seen = {source.fingerprint(NOTHING)}
    for generation in range(1, 6):
        mounted.swap({"chat.json": document_text(generation=generation)})
        seen.add(source.fingerprint(NOTHING))
        assert source.fingerprint(NOTHING) in seen
    assert len(seen) == 6
