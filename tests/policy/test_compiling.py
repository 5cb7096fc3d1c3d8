"""Resources to documents: what is wrong is left out alone."""

from pathlib import Path

import pytest
from giveway_policy.faults import FaultKind

from tests.policy.policy_texts import BOTH, POLICY, TENANT, compile_text


def _tenant(name: str, *, recognized: str = "", tenant: str | None = None) -> str:
    text = TENANT.replace("name: acme", f"name: {name}")
    return text.replace("tenant: acme", f"tenant: {tenant or name}") + recognized


def test_good_resources_make_one_document(tmp_path: Path) -> None:
    loading, compilation = compile_text(tmp_path, BOTH)
    (document,) = compilation.documents
    assert str(document.policy) == "llm/chat"
    assert document.spec == loading.policies[0].resource.spec
    assert [each.name for each in document.tenants] == ["acme"]
    assert (compilation.faults, compilation.faulty) == ((), frozenset())


@pytest.mark.parametrize(
    "broken",
    [
        TENANT.replace("weight", "weigth"),
        TENANT.replace("realtime", "gold"),
        TENANT + "  recognizedBy: [{apiKey: {keyFile: missing}}]\n",
        TENANT + "  recognizedBy: [{jwtClaim: {claim: a, value: b}}]\n",
        TENANT + "  weight: 5\n",
        "kind: [\n",
    ],
    ids=["schema", "meaning", "keys", "jwt", "twice", "syntax"],
)
def test_one_bad_resource_is_left_out_alone(tmp_path: Path, broken: str) -> None:
    """D12: the policy and the good tenants before and behind it take effect."""
    text = "---\n".join([_tenant("first"), broken, POLICY, _tenant("last")])
    loading, compilation = compile_text(tmp_path, text)
    (document,) = compilation.documents
    assert [each.name for each in document.tenants] == ["first", "last"]
    assert len([*loading.faults, *compilation.faults]) == 1


def test_a_bad_policy_is_left_out_alone(tmp_path: Path) -> None:
    """Its neighbour is compiled with all tenants."""
    bad = POLICY.replace("name: chat", "name: bad").replace("name: batch", "name: realtime")
    _, compilation = compile_text(tmp_path, f"{bad}---\n{BOTH}")
    (document,) = compilation.documents
    assert (document.policy.name, len(document.tenants)) == ("chat", 1)
    (fault,) = compilation.faults
    assert (str(fault.resource), fault.line) == ("SLOPolicy llm/bad", 10)


def test_each_policy_gets_the_tenants_that_fit_it(tmp_path: Path) -> None:
    """A tenant is for the whole cluster; a policy without its class goes without it, no fault."""
    other = POLICY.replace("name: chat", "name: other").replace("realtime", "gold")
    _, compilation = compile_text(tmp_path, f"{other}---\n{BOTH}")
    tenants = {each.policy.name: len(each.tenants) for each in compilation.documents}
    assert tenants == {"other": 0, "chat": 1}
    assert compilation.faults == ()
    (misfit,) = compilation.misfits
    assert "there is no class realtime" in misfit.reason


def test_a_tenant_that_fits_no_policy_is_told_of_the_one_it_fits_best(tmp_path: Path) -> None:
    """A typo in one field is one fault, however many policies there are."""
    other = POLICY.replace("name: chat", "name: other").replace("realtime", "gold")
    typo = TENANT + "  defaultClass: bach\n"
    _, compilation = compile_text(tmp_path, f"{other}---\n{POLICY}---\n{typo}")
    (fault,) = compilation.faults
    assert (fault.path, fault.reason) == (
        "spec.defaultClass",
        "there is no class bach in the policy",
    )
    assert compilation.misfits == ()


HEADER = "  recognizedBy: [{header: {name: X-Tenant, value: same}}]\n"
OTHER_HEADER = "  recognizedBy: [{header: {name: x-tenant, value: same}}]\n"
KEYS = "  recognizedBy: [{apiKey: {keyFile: same.txt}}]\n"


@pytest.mark.parametrize(
    ("first", "second", "says", "line"),
    [
        (
            _tenant("a", tenant="same"),
            _tenant("b", tenant="same"),
            "the tenant same belongs to TenantPriority a already",
            5,
        ),
        (
            _tenant("a", recognized=HEADER),
            _tenant("b", recognized=OTHER_HEADER),
            "this value of x-tenant belongs to TenantPriority a already",
            8,
        ),
        (
            _tenant("a", recognized=KEYS),
            _tenant("b", recognized=KEYS),
            "one of its API keys belongs to TenantPriority a already",
            8,
        ),
        (_tenant("a"), _tenant("a", tenant="b"), "TenantPriority a stands twice", 3),
    ],
    ids=["tenant", "header", "key", "name"],
)
def test_of_two_that_claim_the_same_the_first_keeps_it(
    tmp_path: Path, first: str, second: str, says: str, line: int
) -> None:
    """Nobody becomes another tenant by a later resource; the fault names both places."""
    (tmp_path / "same.txt").write_text("one-and-the-same-key\n")
    third = _tenant("c")
    _, compilation = compile_text(tmp_path, f"{POLICY}---\n{first}---\n{second}---\n{third}")
    (document,) = compilation.documents
    assert len(document.tenants) == 2
    assert "c" in [each.name for each in document.tenants]
    (fault,) = compilation.faults
    assert says in fault.reason
    assert f"{tmp_path}/policy.yaml:" in fault.reason
    assert fault.kind is FaultKind.CONFLICT
    # the second tenant begins behind the policy, the first tenant, and a line of dashes each
    begin = len(POLICY.splitlines()) + len(first.splitlines()) + 2
    assert fault.line == begin + line


def test_a_key_that_stands_twice_for_one_tenant_is_one_key(tmp_path: Path) -> None:
    (tmp_path / "same.txt").write_text("one-and-the-same-key\n")
    twice = "  recognizedBy: [{apiKey: {keyFile: same.txt}}, {apiKey: {keyFile: ./same.txt}}]\n"
    _, compilation = compile_text(tmp_path, f"{POLICY}---\n{_tenant('a', recognized=twice)}")
    assert compilation.faults == ()
    assert len(compilation.documents[0].tenants[0].key_digests) == 1


def test_compiling_twice_gives_the_same(tmp_path: Path) -> None:
    """Order of tenants in the files does not matter for the content."""
    _, one = compile_text(tmp_path, "---\n".join([POLICY, _tenant("a"), _tenant("b")]))
    _, other = compile_text(tmp_path, "---\n".join([_tenant("b"), _tenant("a"), POLICY]))
    assert one.documents == other.documents
