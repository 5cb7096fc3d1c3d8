"""Resources in a file or folder: what is good takes effect, what is not changes nothing."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from giveway_admission.local_policies import LocalPolicies
from giveway_admission.policy_sources import NOTHING, SourceReading
from giveway_policy.documents import PolicyDocument

from tests.admission.policy_folders import policy, tenant


class Follower:
    """Reads a source again and again, as a proxy does."""

    def __init__(self, path: Path, *, policy_name: str | None = None) -> None:
        self._source = LocalPolicies(path, policy_name=policy_name)
        self._last: SourceReading = NOTHING

    def read(self) -> SourceReading:
        self._last = self._source.read(self._last)
        return self._last

    @property
    def document(self) -> PolicyDocument:
        assert self._last.document is not None
        return self._last.document

    @property
    def weights(self) -> dict[str, int]:
        """Of the highest class and of each tenant."""
        found = {each.name: each.weight for each in self.document.tenants}
        return {"realtime": self.document.spec.classes[0].weight, **found}

    def fingerprint(self) -> object:
        return self._source.fingerprint(self._last)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "policy.yaml").write_text(policy())
    (folder / "acme.yaml").write_text(tenant("acme"))
    (folder / "zeta.yaml").write_text(tenant("zeta"))
    return folder


def _good(folder: Path) -> Follower:
    follower = Follower(folder)
    assert follower.read().faults == ()
    assert follower.weights == {"realtime": 70, "acme": 1, "zeta": 1}
    return follower


BROKEN: dict[str, str | bytes] = {
    "syntax": "a: [",
    "garbage": b"\x00\xff\xfe",
    "5 MB": "#" * (5 * 2**20),
    "typo": tenant("acme", weight=9).replace("weight", "weigth"),
    "no such class": tenant("acme", weight=9, maximum="gold"),
    "no such key file": tenant("acme", weight=9, keys="missing"),
    "another's name": tenant("acme", weight=9).replace("tenant: acme", "tenant: zeta"),
    "kind": tenant("acme", weight=9).replace("TenantPriority", "Tenantpriority"),
    "version": tenant("acme", weight=9).replace("v1alpha1", "v1"),
    "nameless": tenant("acme", weight=9).replace("name: acme", ""),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_the_last_good_version_of_a_bad_resource_stays_and_its_neighbours_take_effect(
    folder: Path, content: str | bytes
) -> None:
    """D07, D12: one file is spoilt while two others change; then the former content heals it."""
    follower = _good(folder)
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "acme.yaml").write_bytes(data)
    (folder / "zeta.yaml").write_text(tenant("zeta", weight=2))
    (folder / "policy.yaml").write_text(policy(60))
    reading = follower.read()
    assert follower.weights == {"realtime": 60, "acme": 1, "zeta": 2}
    assert reading.faults
    assert all(fault.file == str(folder / "acme.yaml") for fault in reading.faults)
    (folder / "acme.yaml").write_text(tenant("acme"))
    assert follower.read().faults == ()
    assert follower.weights == {"realtime": 60, "acme": 1, "zeta": 2}
    (folder / "acme.yaml").write_text(tenant("acme", weight=3))
    assert follower.read().faults == ()
    assert follower.weights == {"realtime": 60, "acme": 3, "zeta": 2}


@pytest.mark.parametrize(
    "content",
    [
        "a: [",
        "",
        b"\x00\xff",
        "#" * (5 * 2**20),
        policy(9).replace("weight", "weigth"),
        policy(9).replace("batch", "realtime"),
        policy(9).replace("v1alpha1", "v2"),
    ],
    ids=["syntax", "empty", "garbage", "5 MB", "typo", "same class twice", "version"],
)
def test_a_bad_policy_changes_nothing_and_holds_up_no_tenant(
    folder: Path, content: str | bytes
) -> None:
    """D01, D07, D12: good, broken with a good tenant beside it, good again, changed."""
    follower = _good(folder)
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "policy.yaml").write_bytes(data)
    assert follower.read().faults
    assert follower.weights["realtime"] == 70
    if content != "":
        (folder / "acme.yaml").write_text(tenant("acme", weight=2))
        assert follower.read().faults
        assert follower.weights == {"realtime": 70, "acme": 2, "zeta": 1}
    (folder / "policy.yaml").write_text(policy())
    assert follower.read().faults == ()
    (folder / "policy.yaml").write_text(policy(50))
    assert follower.read().faults == ()
    assert follower.weights["realtime"] == 50


def _take_away_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def _empty_folder(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def _take_away_policy(folder: Path) -> None:
    (folder / "policy.yaml").unlink()


@pytest.mark.parametrize("harm", [_take_away_folder, _empty_folder, _take_away_policy])
def test_a_policy_that_is_gone_stays_in_force(folder: Path, harm: Callable[[Path], None]) -> None:
    """D07: the file or the folder removed, and back."""
    follower = _good(folder)
    before = follower.document
    harm(folder)
    assert follower.read().faults
    assert follower.document == before
    folder.mkdir(exist_ok=True)
    (folder / "policy.yaml").write_text(policy(60))
    assert follower.read().faults == ()
    assert follower.document.spec.classes[0].weight == 60


def test_a_tenant_that_is_taken_away_is_gone(folder: Path) -> None:
    """Taking a file out of a folder that can be read is meant."""
    follower = _good(folder)
    (folder / "acme.yaml").unlink()
    assert follower.read().faults == ()
    assert follower.weights == {"realtime": 70, "zeta": 1}


def test_a_tenant_whose_class_is_gone_is_left_out_until_it_fits(folder: Path) -> None:
    """Its last good version does not fit the new policy either; it comes back with the class."""
    follower = _good(folder)
    (folder / "zeta.yaml").write_text(tenant("zeta", maximum="batch"))
    (folder / "policy.yaml").write_text(policy().replace("realtime", "urgent"))
    (fault,) = follower.read().faults
    assert "there is no class realtime" in fault.reason
    assert not fault.last_good_in_force
    assert [each.name for each in follower.document.tenants] == ["zeta"]
    (folder / "policy.yaml").write_text(policy())
    assert follower.read().faults == ()
    assert [each.name for each in follower.document.tenants] == ["acme", "zeta"]


def test_tenants_written_for_a_broken_policy_wait_for_it(folder: Path) -> None:
    """Policy and tenant change together, and the policy is wrong: both stay as they were."""
    follower = _good(folder)
    with_gold = policy(60).replace("realtime", "gold")
    (folder / "policy.yaml").write_text(with_gold.replace("batch", "gold"))
    (folder / "acme.yaml").write_text(tenant("acme", weight=2, maximum="gold"))
    reading = follower.read()
    assert follower.weights == {"realtime": 70, "acme": 1, "zeta": 1}
    assert {str(each.resource) for each in reading.faults} == {
        "SLOPolicy chat",
        "TenantPriority acme",
    }
    assert all(each.last_good_in_force for each in reading.faults)


def test_the_keys_are_followed_too(folder: Path) -> None:
    """The fingerprint covers key files, and the keys of a broken one stay in force."""
    keys = folder / "acme.keys"
    keys.write_text("the-first-key\n")
    (folder / "acme.yaml").write_text(tenant("acme", keys="acme.keys"))
    follower = Follower(folder)
    follower.read()
    digests = follower.document.tenants[0].key_digests
    before = follower.fingerprint()
    keys.write_text("the-first-key\nthe-second-key\n")
    assert follower.fingerprint() != before
    follower.read()
    assert len(follower.document.tenants[0].key_digests) == 2
    keys.unlink()
    (fault,) = follower.read().faults
    assert str(fault).endswith("its last good version stays in force")
    assert len(follower.document.tenants[0].key_digests) == 2
    before = follower.fingerprint()
    keys.write_text("the-first-key\n")
    assert follower.fingerprint() != before
    assert follower.read().faults == ()
    assert follower.document.tenants[0].key_digests == digests


def test_the_generation_counts_changes_of_content(folder: Path) -> None:
    """An edit that changes nothing, like a comment, is no change."""
    follower = _good(folder)
    assert follower.document.generation == 1
    (folder / "policy.yaml").write_text("# words\n" + policy())
    follower.read()
    assert follower.document.generation == 1
    (folder / "policy.yaml").write_text(policy(60))
    follower.read()
    assert follower.document.generation == 2


def test_one_of_several_policies_is_chosen_by_name(folder: Path) -> None:
    """A tenant of the other policy's classes is no fault, and not in our document."""
    (folder / "other.yaml").write_text(policy(50, name="other").replace("realtime", "gold"))
    (folder / "gold.yaml").write_text(tenant("gold", maximum="gold"))
    follower = Follower(folder, policy_name="other")
    assert follower.read().faults == ()
    assert [each.name for each in follower.document.tenants] == ["gold"]
    assert follower.document.policy.name == "other"


def test_a_fault_of_another_policy_is_told_and_changes_nothing(folder: Path) -> None:
    (folder / "other.yaml").write_text(policy(50, name="other"))
    follower = Follower(folder, policy_name="chat")
    assert follower.read().faults == ()
    (folder / "other.yaml").write_text(policy(40, name="other").replace("weight", "weigth"))
    (folder / "policy.yaml").write_text(policy(60))
    assert {str(each.resource) for each in follower.read().faults} == {"SLOPolicy other"}
    assert follower.weights == {"realtime": 60, "acme": 1, "zeta": 1}


def test_several_policies_without_a_name_are_a_fault(folder: Path) -> None:
    (folder / "third.yaml").write_text(policy(50, name="third"))
    reading = Follower(folder).read()
    assert reading.document is None
    (fault,) = reading.faults
    assert fault.reason == "there are several SLOPolicies: chat, third"
    assert fault.fix == "choose one by --policy-name"


def test_a_second_policy_does_not_displace_the_one_in_force(folder: Path) -> None:
    follower = _good(folder)
    (folder / "a.yaml").write_text(policy(50, name="a"))
    (folder / "policy.yaml").write_text(policy(60))
    (fault,) = follower.read().faults
    assert "several SLOPolicies" in fault.reason
    assert follower.weights["realtime"] == 60


def test_a_name_that_is_not_there_is_a_fault(folder: Path) -> None:
    (fault,) = Follower(folder, policy_name="nobody").read().faults
    assert fault.reason == "there is no good SLOPolicy nobody in it"
    assert fault.fix == "name one of: chat"


def test_a_namespace_can_be_part_of_the_name(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(policy().replace("name: chat", "name: chat, namespace: llm"))
    reading = Follower(file, policy_name="llm/chat").read()
    assert reading.faults == ()
    assert reading.document is not None
    assert str(reading.document.policy) == "llm/chat"
