"""Digests of API keys from a Secret of their own, beside documents that hold none."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from giveway_admission.mounted_documents import MountedDocuments
from giveway_admission.policy_sources import NOTHING, SourceReading
from giveway_policy.documents import (
    PolicyDocument,
    PolicyName,
    Tenant,
    document_json,
    make_document,
)
from giveway_policy.key_digests import parse_digests, with_digests, without_digests

from tests.admission.policy_documents import document

ONE, TWO = "1" * 64, "2" * 64


class Mounts:
    """A folder with a document, a folder with digests, and a proxy that reads them."""

    def __init__(self, folder: Path) -> None:
        self.documents = folder / "policy"
        self.digests = folder / "digests"
        self.documents.mkdir()
        self.digests.mkdir()
        self.source = MountedDocuments(self.documents, key_digests=self.digests)
        self.last: SourceReading = NOTHING
        self.publish(1)

    def publish(self, generation: int) -> None:
        document = published(generation)
        (self.documents / "chat.json").write_text(document_json(document))

    def write(self, digests: object) -> None:
        (self.digests / "digests.json").write_text(json.dumps(digests))

    def read(self) -> dict[str, tuple[str, ...]]:
        self.last = self.source.read(self.last)
        assert self.last.document is not None
        return {each.name: each.key_digests for each in self.last.document.tenants}


def published(generation: int = 1) -> PolicyDocument:
    tenants = tuple(
        Tenant(name=name, maximum_class="realtime", default_class="realtime")
        for name in ("acme", "beta")
    )
    return make_document(
        PolicyName(namespace="llm", name="chat"),
        document().spec,
        tenants=tenants,
        generation=generation,
    )


@pytest.fixture
def mounts(tmp_path: Path) -> Mounts:
    return Mounts(tmp_path)


def test_digests_are_those_of_the_secret_and_the_hash_stays_the_published_one(
    mounts: Mounts,
) -> None:
    mounts.write({"acme": [ONE], "unknown": [TWO]})
    assert mounts.read() == {"acme": (ONE,), "beta": ()}
    assert mounts.last.document is not None
    assert mounts.last.document.hash == published().hash


def test_change_of_digests_alone_is_a_change(mounts: Mounts) -> None:
    mounts.write({"acme": [ONE]})
    before = mounts.source.fingerprint(NOTHING)
    mounts.read()
    document = mounts.last.document
    mounts.write({"acme": [ONE, TWO]})
    assert mounts.source.fingerprint(NOTHING) != before
    assert mounts.read()["acme"] == (ONE, TWO)
    assert mounts.last.document != document


def test_digests_that_are_gone_are_taken_back(mounts: Mounts) -> None:
    mounts.write({"acme": [ONE]})
    mounts.read()
    (mounts.digests / "digests.json").unlink()
    assert mounts.read() == {"acme": (), "beta": ()}


@pytest.mark.parametrize("broken", ["{", "[]", '{"acme": "x"}', '{"acme": ["x"]}', "\x1f\x8b"])
def test_digests_that_cannot_be_read_take_no_key_away(mounts: Mounts, broken: str) -> None:
    mounts.write({"acme": [ONE]})
    mounts.read()
    (mounts.digests / "digests.json").write_text(broken)
    mounts.publish(2)
    assert mounts.read() == {"acme": (ONE,), "beta": ()}
    assert [each.file for each in mounts.last.faults] == [str(mounts.digests / "digests.json")]
    assert mounts.last.document is not None
    assert mounts.last.document.generation == 2


def test_folder_that_is_gone_takes_no_key_away(mounts: Mounts) -> None:
    mounts.write({"acme": [ONE]})
    mounts.read()
    shutil.rmtree(mounts.digests)
    assert mounts.read() == {"acme": (ONE,), "beta": ()}
    assert len(mounts.last.faults) == 1


def test_key_of_two_tenants_is_nobodys(mounts: Mounts) -> None:
    mounts.write({"acme": [ONE, TWO], "beta": [TWO]})
    assert mounts.read() == {"acme": (ONE,), "beta": ()}


def test_packed_digests_are_unpacked() -> None:
    text = json.dumps({"acme": [ONE]}).encode()
    assert parse_digests(gzip.compress(text)) == {"acme": (ONE,)}
    with pytest.raises(ValueError, match="cut"):
        parse_digests(gzip.compress(text)[:-9])


def test_taking_digests_out_and_putting_them_in_again_gives_the_same() -> None:
    whole = with_digests(published(), {"acme": (ONE,)})
    assert without_digests(whole) == published()
    assert with_digests(without_digests(whole), {"acme": (ONE,)}) == whole
