"""Who leads, and that never two believe it for long: with clocks that tests move."""

from dataclasses import dataclass, field

import pytest
from giveway_operator.kube_client import LEASES, KubeError, Resource, UnavailableError
from giveway_operator.leases import Leadership, LeaseSettings, NotLeadingError

from tests.operator.kube_fakes import FakeKube

MINUTES = 29_000_000
SETTINGS = LeaseSettings(namespace="giveway-system")


@dataclass
class Machines:
    """Operators before one API server, each with a clock of its own."""

    kube: FakeKube = field(default_factory=FakeKube)
    now_s: float = 0.0

    def operator(self, name: str, *, skew_s: float = 0.0) -> Leadership:
        """`skew_s`: by how much its clocks are ahead."""
        return Leadership(
            self.kube,
            SETTINGS,
            clock=lambda: self.now_s + skew_s,
            now=lambda: f"at {self.now_s + skew_s}",
            minutes=lambda: MINUTES,
            identity=name,
        )

    @property
    def spec(self) -> dict[str, object]:
        spec: dict[str, object] = self.kube.get(LEASES, SETTINGS.name, SETTINGS.namespace)["spec"]
        return spec


@pytest.fixture
def machines() -> Machines:
    return Machines()


async def test_first_one_leads_and_the_epoch_begins_with_the_minutes(machines: Machines) -> None:
    one, two = machines.operator("one"), machines.operator("two")
    await one.tick()
    await two.tick()
    assert (one.leading, two.leading) == (True, False)
    assert one.epoch == MINUTES
    with pytest.raises(NotLeadingError):
        two.guard()


async def test_leader_that_renews_goes_on_in_its_epoch(machines: Machines) -> None:
    one, two = machines.operator("one"), machines.operator("two")
    for _ in range(100):
        pause_s = await one.tick()
        await two.tick()
        assert (one.leading, two.leading) == (True, False)
        machines.now_s += pause_s
    assert one.epoch == MINUTES


async def test_silent_leader_is_followed_within_30_s_in_the_next_epoch(machines: Machines) -> None:
    one, two = machines.operator("one"), machines.operator("two")
    await one.tick()
    while not two.leading:
        machines.now_s += await two.tick()
    assert machines.now_s < 30.0
    assert two.epoch == MINUTES + 1


@pytest.mark.parametrize("skew_s", [-86_400.0, 86_400.0])
async def test_clock_of_another_machine_does_not_matter(machines: Machines, skew_s: float) -> None:
    one, two = machines.operator("one"), machines.operator("two", skew_s=skew_s)
    for _ in range(20):
        pause_s = await one.tick()
        await two.tick()
        assert (one.leading, two.leading) == (True, False)
        machines.now_s += pause_s


async def test_leader_without_an_answer_stops_before_another_one_begins(machines: Machines) -> None:
    one, two = machines.operator("one"), machines.operator("two")
    await one.tick()
    await two.tick()

    def away(verb: str, resource: Resource, namespace: str) -> KubeError | None:
        return UnavailableError("away") if asking == "one" else None

    machines.kube.fail = away
    ended_s = began_s = 0.0
    while not began_s:
        machines.now_s += 0.5
        for asking, operator in (("one", one), ("two", two)):  # noqa: B007 - `away` looks at it
            await operator.tick()
        assert not (one.leading and two.leading)
        if not one.leading and not ended_s:
            ended_s = machines.now_s
        if two.leading:
            began_s = machines.now_s
    assert began_s - ended_s >= 4.0, "time for a write that was under way"


async def test_failed_renewal_is_tried_again_while_the_last_one_is_trusted(
    machines: Machines,
) -> None:
    one = machines.operator("one")
    machines.now_s += await one.tick()
    machines.kube.fail = lambda *_: UnavailableError("away")
    attempts = 0
    while one.leading:
        machines.now_s += await one.tick()
        attempts += 1
    assert attempts >= 3


async def test_clean_stop_hands_over_at_once(machines: Machines) -> None:
    one, two = machines.operator("one"), machines.operator("two")
    await one.tick()
    await two.tick()
    await one.release()
    assert not one.leading
    await two.tick()
    assert two.leading
    assert two.epoch == MINUTES + 1


async def test_of_two_that_take_over_at_once_one_leads(machines: Machines) -> None:
    one = machines.operator("one")
    await one.tick()
    others = [machines.operator(f"other-{number}") for number in range(5)]
    for each in others:
        await each.tick()
    machines.now_s += SETTINGS.duration_s
    for each in others:
        await each.tick()
    assert sum(each.leading for each in others) == 1


async def test_conflict_is_no_leadership(machines: Machines) -> None:
    """Somebody took it between our look and our write."""
    one, two = machines.operator("one"), machines.operator("two")
    await one.tick()
    await two.tick()
    machines.now_s += SETTINGS.duration_s

    def overtaken(verb: str, resource: Resource, namespace: str) -> None:
        if verb == "replace":
            lease = machines.kube.get(LEASES, SETTINGS.name, SETTINGS.namespace)
            lease["metadata"]["resourceVersion"] = "another"

    machines.kube.fail = overtaken
    await two.tick()
    assert not two.leading


async def test_lease_that_somebody_deleted_is_made_anew_and_the_epoch_does_not_fall(
    machines: Machines,
) -> None:
    one = machines.operator("one")
    await one.tick()
    machines.kube.remove(LEASES, SETTINGS.name, SETTINGS.namespace)
    await one.tick()
    assert one.leading
    assert one.epoch >= MINUTES


@pytest.mark.parametrize(
    "spec", [{}, {"holderIdentity": None}, {"holderIdentity": "", "leaseTransitions": 4}]
)
async def test_lease_that_nobody_holds_is_taken(
    machines: Machines, spec: dict[str, object]
) -> None:
    metadata = {"name": SETTINGS.name, "namespace": SETTINGS.namespace}
    machines.kube.put(LEASES, {"metadata": metadata, "spec": spec})
    one = machines.operator("one")
    await one.tick()
    assert one.leading
    assert one.epoch == (5 if "leaseTransitions" in spec else 1)


async def test_one_that_stands_by_says_if_there_is_no_leader(machines: Machines) -> None:
    one, two = machines.operator("one"), machines.operator("two")
    assert "not be read yet" in two.standby_fault()
    await one.tick()
    await two.tick()
    assert two.standby_fault() == ""
    machines.kube.fail = lambda *_: UnavailableError("away")
    machines.now_s += SETTINGS.duration_s + 1
    await two.tick()
    assert "could not be read for" in two.standby_fault()
