"""Does a real API server take what the models take, and refuse what they refuse?"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from giveway_policy.checks import check_policy
from giveway_policy.resources import SLOPolicy
from giveway_policy.tenant_checks import check_tenant
from giveway_policy.tenants import TenantPriority
from giveway_policy.validating import validate
from hypothesis import HealthCheck, given, settings

from tests.policy.policy_texts import valid_policy
from tests.policy.resource_strategies import policies
from tests.support.control_plane import ControlPlane
from tests.support.waiting import until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
INTERACTIVE = {"name": "chat", "kind": "Interactive"}
BATCH = {"name": "batch", "kind": "Batch"}
TWO = [INTERACTIVE, BATCH]
TTFT = {"indicator": "TimeToFirstToken", "thresholdMilliseconds": 300, "targetPercent": "99"}


@pytest.fixture(scope="module")
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    with control_plane.namespace("resources") as name:
        yield name


def policy(spec: Mapping[str, Any], *, name: str = "one", namespace: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "giveway.dev/v1alpha1",
        "kind": "SLOPolicy",
        "metadata": {"name": name, "namespace": namespace or "resources"},
        "spec": dict(spec),
    }


def tenant(spec: Mapping[str, Any], *, name: str = "acme") -> dict[str, Any]:
    return {
        "apiVersion": "giveway.dev/v1alpha1",
        "kind": "TenantPriority",
        "metadata": {"name": name},
        "spec": dict(spec),
    }


def one_class(**more: Any) -> dict[str, Any]:
    return {"classes": [{**INTERACTIVE, **more}]}


WRONG_POLICIES: list[tuple[str, dict[str, Any], str]] = [
    ("no class", {"classes": []}, "classes"),
    ("a class twice", {"classes": [INTERACTIVE, INTERACTIVE]}, "Duplicate value"),
    ("a reserved class", {"classes": [{**INTERACTIVE, "name": "none"}]}, "take another name"),
    ("no weight", one_class(weight=0), "all weights are 0"),
    ("a negative weight", one_class(weight=-1), "weight"),
    ("an unknown kind", one_class(kind="Fast"), "kind"),
    (
        "a burst without rate",
        one_class(limits={"requestBurst": 5}),
        "requestBurst means nothing",
    ),
    (
        "tokens without rate",
        one_class(limits={"tokenBurst": 5, "tokensPerMinute": 0}),
        "tokenBurst means nothing",
    ),
    (
        "two rates",
        one_class(limits={"requestsPerSecond": 5, "requestsPerMinute": 5}),
        "keep one of them",
    ),
    (
        "no threshold",
        one_class(objectives=[{"indicator": "QueueWait", "targetPercent": "99"}]),
        "needs thresholdMilliseconds",
    ),
    (
        "a threshold of an error rate",
        one_class(objectives=[{**TTFT, "indicator": "ErrorRate"}]),
        "ErrorRate has none",
    ),
    (
        "too long a threshold",
        one_class(
            objectives=[{**TTFT, "indicator": "InterTokenLatency", "thresholdMilliseconds": 60_001}]
        ),
        "too long for InterTokenLatency",
    ),
    ("a target of 100", one_class(objectives=[{**TTFT, "targetPercent": "100"}]), "missed for"),
    ("a target without quotes", one_class(objectives=[{**TTFT, "targetPercent": 99}]), "string"),
    (
        "a source of no class",
        {**one_class(), "sources": [{"source": "a", "class": "b"}]},
        "use one of spec.classes",
    ),
    (
        "all seats reserved",
        {"classes": TWO, "concurrency": {"seats": 8, "reservedSeats": 8}},
        "all seats are reserved",
    ),
    (
        "no batch seat",
        {"classes": TWO, "concurrency": {"batch": {"minimum": 0}}},
        "starves batch",
    ),
    (
        "minimum above maximum",
        {"classes": TWO, "concurrency": {"batch": {"minimum": 5, "maximum": 4}}},
        "minimum is above maximum",
    ),
    (
        "maximum above seats",
        {"classes": TWO, "concurrency": {"seats": 8, "batch": {"maximum": 9}}},
        "above the seats",
    ),
    (
        "nothing interactive",
        {"classes": [BATCH], "scheduling": {"algorithm": "InteractiveFirst"}},
        "needs a class of kind Interactive",
    ),
    (
        "no seat left for interactive",
        {
            "classes": TWO,
            "scheduling": {"algorithm": "InteractiveFirst"},
            "concurrency": {"seats": 8, "reservedSeats": 0, "batch": {"maximum": 8}},
        },
        "none is left",
    ),
    (
        "an ageing class that is not there",
        {
            **one_class(),
            "scheduling": {
                "dynamicAging": {
                    "classes": [{"class": "x", "base": "1", "agingPerMillisecond": "1"}]
                }
            },
        },
        "dynamicAging",
    ),
    (
        "smoothing 0",
        {**one_class(), "scheduling": {"interactiveFirst": {"smoothing": "0"}}},
        "never moves",
    ),
    (
        "a floor of 100",
        {**one_class(), "scheduling": {"sloAware": {"batchTokenFloorPercent": "100"}}},
        "leaves nothing",
    ),
    (
        "a fallback class that is not there",
        {**one_class(), "identity": {"fallbackClass": "x"}},
        "fallbackClass is not there",
    ),
    (
        "a reserved tenant",
        {**one_class(), "identity": {"fallbackTenant": "other"}},
        "many tenants together",
    ),
    (
        "tokens of the web",
        {**one_class(), "identity": {"jwt": {"issuer": "x", "keysFile": "keys.json"}}},
        "not yet supported",
    ),
    (
        "a window below the interval",
        {**one_class(), "adjustment": {"intervalSeconds": 60, "windowSeconds": 30}},
        "shorter than the interval",
    ),
    ("a step of 0", {**one_class(), "adjustment": {"maximumStepPercent": "0"}}, "ever moves"),
    (
        "a first estimate above the largest",
        {
            **one_class(),
            "accounting": {"firstOutputEstimateTokens": 9, "largestOutputEstimateTokens": 8},
        },
        "above the largest",
    ),
    ("free output", {**one_class(), "accounting": {"outputTokenWeight": "0"}}, "are free"),
]

WRONG_TENANTS: list[tuple[str, dict[str, Any], str]] = [
    ("a reserved name", {"tenant": "other", "maximumClass": "chat"}, "many tenants together"),
    ("no class", {"tenant": "a"}, "maximumClass"),
    (
        "a burst without rate",
        {"tenant": "a", "maximumClass": "chat", "limits": {"requestBurst": 1}},
        "requestBurst means nothing",
    ),
    *(
        (
            name,
            {"tenant": "a", "maximumClass": "chat", "recognizedBy": [way]},
            said,
        )
        for name, way, said in (
            ("no way", {}, "exactly one way"),
            (
                "two ways",
                {"apiKey": {"keyFile": "k"}, "header": {"name": "X-T", "value": "a"}},
                "exactly one way",
            ),
            ("keys nowhere", {"apiKey": {}}, "exactly one place"),
            ("a key's header", {"header": {"name": "Authorization", "value": "a"}}, "API key"),
            (
                "our header",
                {"header": {"name": "X-Giveway-Tenant", "value": "a"}},
                "a header of giveway's own",
            ),
            ("a claim", {"jwtClaim": {"claim": "org", "value": "a"}}, "not yet supported"),
        )
    ),
]


@pytest.mark.parametrize(
    ("spec", "said"),
    [each[1:] for each in WRONG_POLICIES],
    ids=[each[0] for each in WRONG_POLICIES],
)
def test_server_refuses_what_the_checks_refuse(
    control_plane: ControlPlane, namespace: str, spec: dict[str, Any], said: str
) -> None:
    """The same policy is wrong offline and on the server, which says what to do."""
    document = policy(spec)
    found = validate(SLOPolicy, document)
    assert isinstance(found, list) or check_policy(found.spec)
    told = control_plane.apply(document, check=False)
    assert "is invalid" in told, told
    assert said in told


@pytest.mark.parametrize(
    ("spec", "said"), [each[1:] for each in WRONG_TENANTS], ids=[each[0] for each in WRONG_TENANTS]
)
def test_server_refuses_tenants_that_the_checks_refuse(
    control_plane: ControlPlane, spec: dict[str, Any], said: str
) -> None:
    """The same for tenants."""
    document = tenant(spec)
    found = validate(TenantPriority, document)
    assert isinstance(found, list) or check_tenant(found.spec)
    told = control_plane.apply(document, check=False)
    assert "is invalid" in told, told
    assert said in told


def test_unknown_field_is_refused_with_its_name(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A typo is not silently dropped: kubectl asks for strict validation."""
    told = control_plane.apply(policy({**one_class(), "shceduling": {}}), check=False)
    assert 'unknown field "spec.shceduling"' in told


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
def test_examples_are_taken_and_stay_as_written(
    control_plane: ControlPlane, example: Path, namespace: str
) -> None:
    """Applied twice by another manager there is no difference, nor in `kubectl diff`."""
    documents = [each for each in yaml.safe_load_all(example.read_text("utf-8")) if each]
    for each in documents:
        if each["kind"] == "SLOPolicy":
            each["metadata"]["namespace"] = namespace
    text = yaml.safe_dump_all(documents)
    apply = ("apply", "--server-side", "--field-manager=gitops", "-f", "-")
    control_plane.kubectl(*apply, stdin=text)
    kinds = {each["kind"]: each["metadata"]["name"] for each in documents}
    before = versions(control_plane, documents, namespace)
    control_plane.kubectl(*apply, stdin=text)
    assert versions(control_plane, documents, namespace) == before
    diff = ("diff", "--server-side", "--field-manager=gitops", "-f", "-")
    assert control_plane.kubectl(*diff, stdin=text) == ""
    assert "SLOPolicy" in kinds


def versions(
    control_plane: ControlPlane, documents: list[dict[str, Any]], namespace: str
) -> list[str]:
    """The resourceVersion of each."""
    return [
        control_plane.get(each["kind"], each["metadata"]["name"], "-n", namespace)["metadata"][
            "resourceVersion"
        ]
        for each in documents
    ]


def test_stored_policy_means_the_same_as_its_file(
    control_plane: ControlPlane, namespace: str
) -> None:
    """What the server fills in are the models' own defaults."""
    specs: list[dict[str, Any]] = [
        {"classes": TWO},
        {"classes": [{**INTERACTIVE, "objectives": [TTFT]}], "concurrency": {}},
    ]
    for index, spec in enumerate(specs):
        document = policy(spec, name=f"plain-{index}")
        control_plane.apply(document)
        stored = control_plane.get("slop", f"plain-{index}", "-n", namespace)
        written, read = validate(SLOPolicy, document), validate(SLOPolicy, stored)
        assert isinstance(written, SLOPolicy)
        assert isinstance(read, SLOPolicy)
        assert read.spec == written.spec


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(document=policies())
def test_server_accepts_whatever_the_checks_accept(
    control_plane: ControlPlane, namespace: str, document: dict[str, object]
) -> None:
    """No rule in CEL refuses what a proxy would run from a file."""
    assert check_policy(valid_policy(document).spec) == []
    text = json.dumps({**document, "metadata": {"name": "any"}})
    command = ("create", "--dry-run=server", "--validate=strict", "-n", namespace, "-f", "-")
    control_plane.kubectl(*command, stdin=text)


def test_tenant_cannot_be_renamed(control_plane: ControlPlane) -> None:
    """The name is what metrics and limits hold on to."""
    control_plane.apply(tenant({"tenant": "acme", "maximumClass": "chat"}, name="immutable"))
    renamed = tenant({"tenant": "other-name", "maximumClass": "chat"}, name="immutable")
    assert "cannot be changed" in control_plane.apply(renamed, check=False)


def test_status_is_written_beside_the_spec(control_plane: ControlPlane, namespace: str) -> None:
    """A user's apply leaves the status alone, and a status cannot change the spec."""
    control_plane.apply(policy(one_class(), name="reported"))
    where = ("slop", "reported", "-n", namespace)
    patch = '{"status": {"observedGeneration": 1}, "spec": {"mode": "Observe"}}'
    control_plane.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", patch)
    control_plane.apply(policy(one_class(), name="reported"))
    stored = control_plane.get(*where)
    assert stored["status"]["observedGeneration"] == 1
    assert stored["spec"]["mode"] == "Enforce"


def test_explain_reads_as_documentation(control_plane: ControlPlane) -> None:
    """Each field that a person writes is explained in words."""
    until_blocking(
        lambda: "DESCRIPTION" in control_plane.kubectl("explain", "slop.spec", check=False),
        what="the server publishes its schemas",
    )
    assert "highest first" in control_plane.kubectl("explain", "slop.spec.classes")
    assert "served as well as" in control_plane.kubectl("explain", "slop.spec.classes.objectives")
    assert "Highest class" in control_plane.kubectl("explain", "tprio.spec.maximumClass")


def test_short_names_and_category_list_everything(
    control_plane: ControlPlane, namespace: str
) -> None:
    """`kubectl get giveway` and the columns that a person on call looks for."""
    control_plane.apply(policy(one_class(), name="listed"))
    table = control_plane.kubectl("get", "giveway", "-n", namespace)
    assert "slopolicy.giveway.dev/listed" in table
    assert "SLO MET" in table
