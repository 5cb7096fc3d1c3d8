"""From resources to what is published, pass by pass, without a cluster."""

import hashlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
from giveway_operator.kube_client import (
    CONFIG_MAPS,
    EVENTS,
    PODS,
    SECRETS,
    SLO_POLICIES,
    TENANT_PRIORITIES,
    ForbiddenError,
    Resource,
    UnavailableError,
)
from giveway_operator.leases import NotLeadingError
from giveway_operator.reporting import LoopEvent
from giveway_policy.documents import PolicyName

from tests.operator.cluster_worlds import CLASSES, World

OTHERS = {"matchLabels": {"app": "other"}}
KEY = "sk-acme-123456"
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()


@pytest.fixture
def world() -> World:
    world = World()
    world.policy()
    world.tenant("acme", recognizedBy=[_keys("acme-keys")])
    world.secret("acme-keys", one=KEY)
    return world


def _keys(secret: str, namespace: str = "llm") -> dict[str, Any]:
    return {"apiKey": {"secretRef": {"namespace": namespace, "name": secret}}}


async def test_policy_and_tenant_are_published_and_reported(world: World) -> None:
    await world.run()
    document = world.document()
    assert document.order == (7, 1)
    assert [each.name for each in document.tenants] == ["acme"]
    assert world.ready("chat", "llm") == ("True", "Published")
    assert world.ready("acme") == ("True", "Published")
    status = world.kube.get(SLO_POLICIES, "chat", "llm")["status"]
    assert status["observedGeneration"] == 1
    assert status["published"] == {"epoch": 7, "generation": 1, "hash": document.hash}


async def test_no_digest_is_in_a_config_map_and_no_key_anywhere(world: World) -> None:
    await world.run()
    assert world.digests() == {"acme": [DIGEST]}
    assert DIGEST not in str(world.kube.get(CONFIG_MAPS, "giveway-policy", "llm"))
    written = [each for key, each in world.kube.objects.items() if key[2] != "acme-keys"]
    assert KEY not in str(written)


async def test_second_pass_writes_nothing(world: World) -> None:
    await world.run()
    assert world.kube.take_writes()
    world.now = "2026-01-31T12:00:30Z"
    await world.run()
    assert world.kube.take_writes() == []


async def test_operator_that_starts_anew_writes_nothing(world: World) -> None:
    await world.run()
    world.kube.take_writes()
    world.epoch = 8
    world.start_operator()
    await world.run()
    assert world.kube.take_writes() == []


async def test_changed_content_has_the_next_generation_in_the_epoch_of_its_writer(
    world: World,
) -> None:
    await world.run()
    world.epoch = 8
    world.start_operator()
    world.policy(mode="Observe")
    await world.run()
    assert world.document().order == (8, 2)


async def test_edit_that_changes_nothing_for_proxies_publishes_nothing(world: World) -> None:
    await world.run()
    world.policy(mode="Enforce")  # the default, written out
    world.kube.take_writes()
    await world.run()
    assert [verb for verb, _ in world.kube.take_writes()] == ["status"]
    assert world.document().order == (7, 1)


async def test_invalid_policy_stays_as_it_was_and_says_why(world: World) -> None:
    world.policy("other", selector=OTHERS)
    await world.run()
    before = world.document()
    world.policy(classes=[{**CLASSES[0], "weight": -1}])
    world.policy("other", selector=OTHERS, mode="Observe")
    await world.run()
    assert world.document() == before
    assert world.document("other").order == (7, 2)
    assert world.ready("chat", "llm") == ("False", "Invalid")
    stalled = world.condition("Stalled", "chat", "llm")
    assert stalled is not None
    assert "weight" in stalled["message"]
    assert "generation 1 stays in force" in stalled["message"]


async def test_invalid_policy_that_is_mended_is_ready_and_not_stalled(world: World) -> None:
    world.policy(classes=[])
    await world.run()
    assert world.ready("chat", "llm") == ("False", "Invalid")
    world.policy()
    await world.run()
    assert world.ready("chat", "llm") == ("True", "Published")
    assert world.condition("Stalled", "chat", "llm") is None


async def test_invalid_tenant_stays_as_it_was_with_its_keys(world: World) -> None:
    world.tenant("beta")
    await world.run()
    world.tenant("acme", weight=0, recognizedBy=[_keys("acme-keys")])
    world.tenant("beta", weight=9)
    await world.run()
    weights = {each.name: each.weight for each in world.document().tenants}
    assert weights == {"acme": 1, "beta": 9}
    assert world.digests() == {"acme": [DIGEST]}
    assert world.ready("acme") == ("False", "Invalid")
    assert world.ready("beta") == ("True", "Published")


async def test_of_two_that_claim_one_tenant_the_one_in_force_keeps_it(world: World) -> None:
    world.tenant("beta", recognizedBy=[{"header": {"name": "X-Team", "value": "b"}}])
    await world.run()
    world.tenant("acme", recognizedBy=[{"header": {"name": "X-Team", "value": "b"}}])
    await world.run()
    assert world.ready("acme") == ("False", "Conflict")
    assert world.ready("beta") == ("True", "Published")
    headers = {each.name: each.headers for each in world.document().tenants}
    assert headers == {"acme": (), "beta": (("x-team", "b"),)}


async def test_of_two_policies_for_the_same_pods_the_older_one_has_them_until_it_is_gone(
    world: World,
) -> None:
    """E20."""
    world.policy("younger")
    for _ in range(3):
        await world.run()
        assert list(world.kube.get(CONFIG_MAPS, "giveway-policy", "llm")["data"]) == ["chat.json"]
        assert world.ready("chat", "llm") == ("True", "Published")
        assert world.ready("younger", "llm") == ("False", "Conflict")
    world.kube.remove(SLO_POLICIES, "chat", "llm")
    await world.run()
    assert list(world.kube.get(CONFIG_MAPS, "giveway-policy", "llm")["data"]) == ["younger.json"]
    assert world.ready("younger", "llm") == ("True", "Published")


async def test_pod_with_the_labels_of_two_policies_is_a_conflict_that_unpublishes_neither(
    world: World,
) -> None:
    world.policy(selector={"matchLabels": {"model": "llama"}})
    world.policy("other", selector=OTHERS)
    await world.run()
    assert world.ready("other", "llm") == ("True", "Published")
    world.pod("both", model="llama", app="other")
    world.pod("elsewhere", "aaa", model="llama", app="other")
    await world.run()
    assert world.ready("chat", "llm") == ("True", "Published")
    assert world.ready("other", "llm") == ("False", "Conflict")
    assert world.document("other").order == (7, 1)
    world.kube.remove(PODS, "both", "llm")
    await world.run()
    assert world.ready("other", "llm") == ("True", "Published")


async def test_deleted_tenant_is_gone_from_document_and_digests(world: World) -> None:
    await world.run()
    world.kube.remove(TENANT_PRIORITIES, "acme")
    await world.run()
    assert world.document().tenants == ()
    assert ("secrets", "llm", "giveway-key-digests") not in world.kube.objects


async def test_deleted_policy_takes_its_document_along(world: World) -> None:
    world.policy("other", selector=OTHERS)
    await world.run()
    world.kube.remove(SLO_POLICIES, "chat", "llm")
    await world.run()
    assert list(world.kube.get(CONFIG_MAPS, "giveway-policy", "llm")["data"]) == ["other.json"]
    world.kube.remove(SLO_POLICIES, "other", "llm")
    await world.run()
    assert ("configmaps", "llm", "giveway-policy") not in world.kube.objects
    assert ("secrets", "llm", "giveway-key-digests") not in world.kube.objects


async def test_policy_made_anew_has_a_higher_number_than_before(world: World) -> None:
    await world.run()
    world.kube.remove(SLO_POLICIES, "chat", "llm")
    await world.run()
    world.policy()
    await world.run()
    assert world.document().order == (7, 2)


async def test_document_that_somebody_deleted_comes_back_with_a_higher_number(
    world: World,
) -> None:
    await world.run()
    world.kube.remove(CONFIG_MAPS, "giveway-policy", "llm")
    world.start_operator()
    await world.run()
    assert world.document().order == (7, 2), "told by the policy's status"


@pytest.mark.parametrize("broken", ["", "{", '{"format": 2}', "\ud800"])
async def test_document_that_somebody_broke_is_written_anew(world: World, broken: str) -> None:
    await world.run()
    world.kube.get(CONFIG_MAPS, "giveway-policy", "llm")["data"]["chat.json"] = broken
    await world.run()
    assert world.document().order == (7, 2)


async def test_key_that_somebody_added_is_taken_out(world: World) -> None:
    await world.run()
    config_map = world.kube.get(CONFIG_MAPS, "giveway-policy", "llm")
    config_map["data"]["theirs.json"] = config_map["data"]["chat.json"]
    config_map["foreign"] = {"theirs.json": config_map["data"]["chat.json"]}
    await world.run()
    assert list(world.kube.get(CONFIG_MAPS, "giveway-policy", "llm")["data"]) == ["chat.json"]
    world.kube.take_writes()
    await world.run()
    assert world.kube.take_writes() == []


async def test_deleted_secret_takes_its_keys_back(world: World) -> None:
    await world.run()
    world.kube.remove(SECRETS, "acme-keys", "llm")
    world.clock_s += 60
    await world.run()
    assert ("secrets", "llm", "giveway-key-digests") not in world.kube.objects
    assert [each.name for each in world.document().tenants] == ["acme"]


async def test_secret_that_cannot_be_read_takes_no_key_away(world: World) -> None:
    await world.run()
    world.clock_s += 60

    def fail(verb: str, resource: Resource, namespace: str) -> ForbiddenError | None:
        is_theirs = resource is SECRETS and verb == "get"
        return ForbiddenError("no") if is_theirs and not own.pop(0) else None

    own = [True, False]  # the operator's own is read first
    world.kube.fail = fail
    await world.run()
    assert world.digests() == {"acme": [DIGEST]}
    assert world.ready("acme") == ("False", "CredentialsUnusable")
    assert world.condition("Stalled", "acme") is None


async def test_secret_is_read_again_only_when_it_is_old(world: World) -> None:
    await world.run()
    world.secret("acme-keys", one="sk-acme-changed")
    await world.run()
    assert world.digests() == {"acme": [DIGEST]}
    world.clock_s += 15
    await world.run()
    assert world.digests() != {"acme": [DIGEST]}


@pytest.mark.parametrize("name", ["../../configmaps/x", "a/b", "", 3, None, {"a": 1}])
async def test_name_of_a_secret_that_is_none_is_never_asked_for(world: World, name: Any) -> None:
    asked: list[str] = []
    world.kube.fail = lambda verb, resource, namespace: (
        asked.append(verb) if resource is SECRETS else None
    )
    world.tenant("acme", recognizedBy=[_keys(name)])
    await world.run()
    assert world.ready("acme") == ("False", "Invalid")
    assert asked == ["get"], "its own digests are looked for, and nothing else"


async def test_what_fails_in_one_namespace_stops_no_other(world: World) -> None:
    world.policy("chat", "aaa")

    def fail(verb: str, resource: Resource, namespace: str) -> ForbiddenError | None:
        is_write = resource is CONFIG_MAPS and verb == "apply" and namespace == "aaa"
        return ForbiddenError("the namespace is being terminated") if is_write else None

    world.kube.fail = fail
    result = await world.run()
    assert world.ready("chat", "llm") == ("True", "Published")
    assert world.ready("chat", "aaa") == ("False", "NotPublished")
    assert "terminated" in result.failures["aaa"]


async def test_config_map_that_another_leader_wrote_meanwhile_is_not_overwritten(
    world: World,
) -> None:
    await world.run()
    world.policy(mode="Observe")
    config_map = world.kube.get(CONFIG_MAPS, "giveway-policy", "llm")

    def fail(verb: str, resource: Resource, namespace: str) -> None:
        if verb == "apply" and resource is CONFIG_MAPS:
            config_map["metadata"]["resourceVersion"] = "another"

    world.kube.fail = fail
    result = await world.run()
    assert result.conflicts == 1
    assert result.failures == {}
    assert world.document().order == (7, 1)
    assert world.ready("chat", "llm") == ("True", "Published"), "nothing is said before it is known"
    world.kube.fail = lambda *_: None
    await world.run()
    assert world.document().order == (7, 2)


async def test_nothing_is_written_without_the_lease(world: World) -> None:
    def guard() -> None:
        raise NotLeadingError("not ours")

    world.guard = guard
    with pytest.raises(NotLeadingError):
        await world.run()
    assert world.kube.take_writes() == []


async def test_api_server_that_is_away_is_an_error_of_the_pass(world: World) -> None:
    world.kube.fail = lambda *_: UnavailableError("away")
    with pytest.raises(UnavailableError):
        await world.run()


async def test_decided_weights_are_published_and_stay_until_decided_anew(world: World) -> None:
    await world.run()
    world.weights = lambda *_: {"realtime": 80.0, "standard": 15.0, "batch": 5.0, "gone": 1.0}
    await world.run()
    assert world.document().weights == {"realtime": 80.0, "standard": 15.0, "batch": 5.0}
    assert world.document().order == (7, 2)
    world.kube.take_writes()
    await world.run()
    assert world.kube.take_writes() == []
    world.weights = lambda *_: {"realtime": 70.0, "standard": 25.0, "batch": 5.0}
    await world.run()
    assert world.document().weights == {}, "the policy's own need not be written"


async def test_condition_keeps_its_time_while_its_status_is_the_same(world: World) -> None:
    await world.run()
    world.now = "2026-01-31T13:00:00Z"
    world.policy(mode="Observe")
    await world.run()
    ready = world.condition("Ready", "chat", "llm")
    assert ready is not None
    assert ready["lastTransitionTime"] == "2026-01-31T12:00:00Z"
    assert ready["observedGeneration"] == 2


async def test_events_are_for_transitions(world: World) -> None:
    await world.run()
    assert _events(world) == [("chat", "Published"), ("acme", "Published")]
    await world.run()
    assert len(_events(world)) == 2
    world.policy(classes=[])
    await world.run()
    await world.run()
    assert _events(world)[2:] == [("chat", "Invalid")]


async def test_what_the_loop_tells_becomes_an_event(world: World) -> None:
    event = LoopEvent(type="Normal", reason="WeightsChanged", message="realtime 70 -> 80")
    await world.run(events={PolicyName(namespace="llm", name="chat"): (event,)})
    assert ("chat", "WeightsChanged") in _events(world)


def _events(world: World) -> list[tuple[str, str]]:
    return [
        (each["regarding"]["name"], each["reason"])
        for (plural, _, _), each in world.kube.objects.items()
        if plural == EVENTS.plural
    ]


async def test_event_that_cannot_be_created_fails_nothing(world: World) -> None:
    world.kube.fail = lambda verb, resource, _: ForbiddenError("no") if resource is EVENTS else None
    result = await world.run()
    assert result.failures == {}
    assert world.ready("chat", "llm") == ("True", "Published")


async def test_operator_of_some_namespaces_leaves_others_and_tenants_statuses_alone(
    world: World,
) -> None:
    world.policy("chat", "elsewhere")
    world.start_operator(namespaces=("llm",))
    await world.run()
    assert ("configmaps", "elsewhere", "giveway-policy") not in world.kube.objects
    assert "status" not in world.kube.get(TENANT_PRIORITIES, "acme")
    assert [each.name for each in world.document().tenants] == ["acme"]


async def test_ready_pods_that_the_policy_selects_are_counted(world: World) -> None:
    world.policy(selector={"matchLabels": {"app": "vllm"}})
    world.pod("one", app="vllm")
    world.pod("two", app="vllm", ready=False)
    world.pod("three", app="other")
    world.pod("four", "elsewhere", app="vllm")
    result = await world.run()
    assert result.ready_pods == {PolicyName(namespace="llm", name="chat"): 1}


async def test_operator_that_dies_at_any_request_leaves_what_the_next_one_completes() -> None:
    """kill -9 at each step of a pass in turn: afterwards all is as if nothing had happened."""
    requests = await _requests_of_a_change()
    assert requests > 10
    for fatal in range(1, requests + 1):
        world = await _changed_world()
        before, countdown = world.document().order, [fatal]

        def die(verb: str, resource: Resource, _: str, left: list[int] = countdown) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise _DeathError

        world.kube.fail = die
        with pytest.raises(_DeathError):
            await world.run()
        world.kube.fail = lambda *_: None
        world.epoch = 8
        world.start_operator()
        await world.run()
        document = world.document()
        assert document.spec.mode == "Observe"
        assert document.order > before
        assert document.generation == 2
        assert [each.name for each in document.tenants] == ["acme"]
        assert world.digests() == {"acme": [DIGEST]}
        assert world.ready("chat", "llm") == ("True", "Published")
        world.kube.take_writes()
        await world.run()
        assert world.kube.take_writes() == []


class _DeathError(BaseException):
    """kill -9."""


async def _changed_world() -> World:
    """One pass has run, and then everything changed."""
    world = World()
    world.policy()
    await world.run()
    world.policy(mode="Observe")
    world.tenant("acme", recognizedBy=[_keys("acme-keys")])
    world.secret("acme-keys", one=KEY)
    return world


async def _requests_of_a_change() -> int:
    world = await _changed_world()
    before = world.kube.requests
    await world.run()
    return world.kube.requests - before


async def test_pass_that_finds_the_same_as_before_says_the_same_without_rendering(
    world: World,
) -> None:
    for _ in range(2):
        await world.run()
    settled = await world.run()
    again = await world.run()
    assert again.documents is settled.documents
    assert again.writes == 0


async def test_whatever_a_pass_follows_from_makes_it_look_closely_again(world: World) -> None:
    world.pod("one", app="vllm")

    def edit_document() -> None:
        world.kube.put(
            CONFIG_MAPS,
            {"metadata": {"name": "giveway-policy", "namespace": "llm"}, "data": {}},
        )

    def change_keys() -> None:
        world.secret("acme-keys", one="sk-acme-changed")
        world.clock_s += 60

    def decide() -> None:
        world.weights = lambda *_: {"realtime": 80.0}

    changes: tuple[Callable[[], None], ...] = (
        lambda: world.policy(mode="Observe"),
        lambda: world.tenant("beta"),
        edit_document,
        change_keys,
        decide,
        lambda: world.kube.remove(SLO_POLICIES, "chat", "llm"),
    )
    for change in changes:
        for _ in range(3):
            await world.run()
        world.kube.take_writes()
        change()
        await world.run()
        assert world.kube.take_writes(), change
    world.policy()
    await world.run()
    await world.run()
    world.pod("two", app="vllm")
    assert (await world.run()).ready_pods[PolicyName(namespace="llm", name="chat")] == 2


async def test_weights_that_are_decided_while_a_pass_runs_are_published_by_the_next(
    world: World,
) -> None:
    await world.run()
    world.start_operator()
    decided: dict[str, float] = {}
    racing = False

    def weights(*_: object) -> dict[str, float]:
        answer = dict(decided)
        if racing and threading.current_thread() is not threading.main_thread():
            decided["realtime"] = 80.0  # just after it was rendered
        return answer

    world.weights = weights
    await world.run()
    racing = True
    assert (await world.run()).writes == 0
    racing = False
    await world.run()
    assert world.document().weights == {"realtime": 80.0}


async def test_rendering_does_not_hold_up_the_event_loop(world: World) -> None:
    """With ten thousand tenants it takes longer than the Lease may wait for its renewal."""
    threads: list[threading.Thread] = []

    def weights(*_: object) -> dict[str, float]:
        threads.append(threading.current_thread())
        return {}

    world.weights = weights
    await world.run()
    assert threads
    assert threading.main_thread() not in threads[:1]
