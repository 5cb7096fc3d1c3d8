"""Attainment out of a real Prometheus, 2.x and 3.x, from pages as the proxy writes them."""

from collections.abc import Iterator

import pytest
from giveway_admission.metrics import Metrics
from giveway_admission.outcomes import Outcome
from giveway_admission.policy_facts import policy_facts
from giveway_operator.observations import Observation
from giveway_operator.observing import PrometheusObserver
from giveway_operator.querying import PrometheusClient, PrometheusSettings
from giveway_operator.statuses import ObservationState
from giveway_policy.documents import PolicyName, make_document
from giveway_policy.enumerations import Indicator, Kind
from giveway_policy.mechanics import Adjustment
from giveway_policy.resources import Objective, ServiceClass, SLOPolicySpec

from tests.support.prometheus import Exporter, Prometheus, binaries
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

POLICY = PolicyName(namespace="llm", name="chat")
FIRST_TOKEN, ERRORS = Indicator.TIME_TO_FIRST_TOKEN, Indicator.ERROR_RATE


def spec(*thresholds_ms: int, minimum: int = 20, errors: bool = False) -> SLOPolicySpec:
    """One class for each threshold: c0, c1, ..."""
    beside = (Objective(indicator=ERRORS, target_percent="99"),) if errors else ()
    return SLOPolicySpec(
        classes=tuple(
            ServiceClass(
                name=f"c{rank}",
                kind=Kind.INTERACTIVE,
                objectives=(
                    Objective(
                        indicator=FIRST_TOKEN, threshold_milliseconds=each, target_percent="99"
                    ),
                    *beside,
                ),
            )
            for rank, each in enumerate(thresholds_ms)
        ),
        adjustment=Adjustment(interval_seconds=5, window_seconds=30, minimum_requests=minimum),
    )


class Pod:
    """A proxy's page, counted by the proxy's own code."""

    def __init__(
        self, policy: SLOPolicySpec, name: PolicyName = POLICY, generation: int = 1
    ) -> None:
        self.exporter = Exporter()
        self.bound_texts: tuple[str, str] | None = None
        self.restart(policy, name, generation)

    def restart(
        self, policy: SLOPolicySpec, name: PolicyName = POLICY, generation: int = 1
    ) -> None:
        self.metrics = Metrics(version="1")
        self.configure(policy, name, generation)

    def configure(
        self, policy: SLOPolicySpec, name: PolicyName = POLICY, generation: int = 1
    ) -> None:
        document = make_document(name, policy, epoch=1, generation=generation)
        self.metrics.configure(policy_facts(document))
        self.show()

    def serve(self, class_name: str, *, good: int, bad: int, bad_s: float = 5.0) -> None:
        for count, after_s in ((good, 0.01), (bad, bad_s)):
            for _ in range(count):
                self.metrics.first_token(class_name, after_s)
        self.show()

    def end(self, class_name: str, outcome: Outcome, count: int) -> None:
        for _ in range(count):
            self.metrics.ended(class_name, "acme", outcome, duration_s=0.1)
        self.show()

    def show(self) -> None:
        text = self.metrics.render().decode()
        if self.bound_texts is not None:
            text = text.replace(*self.bound_texts)
        self.exporter.text = text


@pytest.fixture(scope="module", params=["2", "3"])
def prometheus(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    found = binaries()
    if request.param not in found:
        pytest.skip(f"there is no Prometheus {request.param} here")
    with Prometheus(found[request.param], tmp_path_factory.mktemp("prometheus")) as started:
        yield started


@pytest.fixture
def observer(prometheus: Prometheus) -> Iterator[PrometheusObserver]:
    client = PrometheusClient(PrometheusSettings(url=prometheus.url))
    yield PrometheusObserver(client)
    client.close()


async def scraped(prometheus: Prometheus, pod: Pod, class_name: str, count: int) -> None:
    """The page with this many first tokens was scraped twice."""
    series = "giveway_time_to_first_token_seconds_count"
    query = (
        f'count_over_time(({series}{{instance="{pod.exporter.address}",class="{class_name}"}}'
        f" == {count})[20s:250ms]) >= 2"
    )
    await until(lambda: prometheus.query(query), what=f"{count} are scraped")


def ratio(observations: tuple[Observation, ...], class_name: str) -> float | None:
    (found,) = [
        each
        for each in observations
        if each.class_name == class_name and each.indicator is FIRST_TOKEN
    ]
    return found.attained_ratio


def states(observations: tuple[Observation, ...]) -> list[ObservationState]:
    return [each.state for each in observations]


@pytest.mark.parametrize("written", [None, ('le="1.0"', 'le="1"')], ids=["1.0", "1"])
async def test_the_ratio_of_each_class_is_that_of_its_own_threshold(
    prometheus: Prometheus, observer: PrometheusObserver, written: tuple[str, str] | None
) -> None:
    """0.9 s is good for c1 (1 s) and bad for c0 (0.3 s), however the bound of 1 is written."""
    policy = spec(300, 1000, errors=True)
    pod = Pod(policy)
    pod.bound_texts = written
    pod.show()
    with pod.exporter as exporter:
        prometheus.scrape(exporter.address)
        await scraped(prometheus, pod, "c1", 0)
        pod.serve("c0", good=90, bad=10, bad_s=0.9)
        pod.serve("c1", good=30, bad=10, bad_s=0.9)
        pod.end("c0", Outcome.COMPLETED, 90)
        pod.end("c0", Outcome.RATE_LIMITED, 6)
        pod.end("c0", Outcome.ENGINE_FAILED, 4)
        await scraped(prometheus, pod, "c1", 40)
        found = await observer.observe(POLICY, policy)
        assert ratio(found, "c0") == pytest.approx(0.9, abs=1e-6)
        assert ratio(found, "c1") == pytest.approx(1.0, abs=1e-6)
        errors = [each for each in found if each.indicator is ERRORS]
        assert errors[0].attained_ratio == pytest.approx(0.96, abs=1e-6)
        assert errors[1].state is ObservationState.NO_TRAFFIC
        assert found[0].requests == pytest.approx(100, rel=0.5), "extrapolated"


async def test_what_cannot_be_judged_has_a_state_of_its_own(
    prometheus: Prometheus, observer: PrometheusObserver
) -> None:
    """No such policy, no traffic, too little traffic: none is 0 % good."""
    policy = spec(300, 1000)
    pod = Pod(policy)
    with pod.exporter as exporter:
        prometheus.scrape(exporter.address)
        await scraped(prometheus, pod, "c1", 0)
        pod.serve("c1", good=0, bad=3)
        await scraped(prometheus, pod, "c1", 3)
        found = await observer.observe(POLICY, policy)
        assert states(found) == [ObservationState.NO_TRAFFIC, ObservationState.TOO_FEW_REQUESTS]
        assert [each.attained_ratio for each in found] == [None, None]
        other = await observer.observe(PolicyName(namespace="llm", name="other"), policy)
        assert set(states(other)) == {ObservationState.NO_SERIES}


async def test_e16_proxies_that_are_gone_and_those_of_other_policies_do_not_count(
    prometheus: Prometheus, observer: PrometheusObserver
) -> None:
    """E16: a removed pod's bad past is forgotten at once; a policy with classes of the same name in
    another namespace is never seen."""
    policy = spec(300)
    name = PolicyName(namespace="llm", name="leaving")
    stays, goes = Pod(policy, name), Pod(policy, name)
    other = Pod(policy, PolicyName(namespace="elsewhere", name="leaving"))
    with stays.exporter, goes.exporter, other.exporter:
        addresses = [each.exporter.address for each in (stays, goes, other)]
        prometheus.scrape(*addresses)
        for pod in (stays, goes, other):
            await scraped(prometheus, pod, "c0", 0)
        stays.serve("c0", good=100, bad=0)
        goes.serve("c0", good=0, bad=100)
        other.serve("c0", good=0, bad=1000)
        for pod, count in ((stays, 100), (goes, 100), (other, 1000)):
            await scraped(prometheus, pod, "c0", count)
        both = ratio(await observer.observe(name, policy), "c0")
        assert both == pytest.approx(0.5, abs=0.15), "extrapolated for each pod alone"
        prometheus.scrape(addresses[0], addresses[2])
        gone = f'absent(giveway_policy_info{{instance="{addresses[1]}"}})'
        await until(lambda: prometheus.query(gone), what="it is stale")
        assert ratio(await observer.observe(name, policy), "c0") == pytest.approx(1.0)
        whole = await observer.observe_since(name, policy, window_s=600)
        assert ratio(whole, "c0") == pytest.approx(0.5, abs=0.15), "its past counts for the budget"


async def test_a_restarted_proxy_counts_from_zero_without_a_dent(
    prometheus: Prometheus, observer: PrometheusObserver
) -> None:
    """A counter that goes back to 0 is a restart and no negative traffic."""
    policy = spec(300)
    pod = Pod(policy)
    with pod.exporter as exporter:
        prometheus.scrape(exporter.address)
        await scraped(prometheus, pod, "c0", 0)
        pod.serve("c0", good=300, bad=0)
        await scraped(prometheus, pod, "c0", 300)
        pod.restart(policy)
        pod.serve("c0", good=50, bad=50)
        await scraped(prometheus, pod, "c0", 100)
        found = await observer.observe(POLICY, policy)
        assert ratio(found, "c0") == pytest.approx(350 / 400, abs=1e-6)


async def test_scrapes_that_fail_for_a_while_change_no_ratio(
    prometheus: Prometheus, observer: PrometheusObserver
) -> None:
    """While they fail the proxy does not count; afterwards what happened meanwhile does."""
    policy = spec(300)
    name = PolicyName(namespace="llm", name="lossy")
    pod = Pod(policy, name)
    with pod.exporter as exporter:
        prometheus.scrape(exporter.address)
        await scraped(prometheus, pod, "c0", 0)
        pod.serve("c0", good=100, bad=0)
        await scraped(prometheus, pod, "c0", 100)
        exporter.fails = True
        pod.serve("c0", good=50, bad=50)
        lost = f'absent(giveway_policy_info{{instance="{exporter.address}"}})'
        await until(lambda: prometheus.query(lost), what="it is stale")
        assert states(await observer.observe(name, policy)) == [ObservationState.NO_SERIES]
        exporter.fails = False
        await scraped(prometheus, pod, "c0", 200)
        found = await observer.observe(name, policy)
        assert ratio(found, "c0") == pytest.approx(150 / 200, abs=1e-6)


async def test_a_new_threshold_is_judged_only_after_a_window_of_its_own(
    prometheus: Prometheus, observer: PrometheusObserver
) -> None:
    """Its bucket begins with the edit, the count of all is older: the ratio would be too small."""
    policy, edited = spec(300), spec(333)
    pod = Pod(policy)
    with pod.exporter as exporter:
        prometheus.scrape(exporter.address)
        await scraped(prometheus, pod, "c0", 0)
        pod.serve("c0", good=100, bad=0)
        await scraped(prometheus, pod, "c0", 100)
        before = await observer.observe(POLICY, edited)
        assert states(before) == [ObservationState.NO_SERIES], "no bucket ends there"
        pod.configure(edited, generation=2)
        pod.serve("c0", good=100, bad=0)
        await scraped(prometheus, pod, "c0", 200)
        after = await observer.observe(POLICY, edited)
        assert states(after) == [ObservationState.TOO_FEW_REQUESTS]
        assert "longer than the threshold" in after[0].detail


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
async def test_e14_a_count_that_is_no_number_is_no_measurement(
    prometheus: Prometheus, observer: PrometheusObserver, value: str
) -> None:
    """E14: it is a failure that is told, and never a ratio."""
    policy = spec(300)
    pod = Pod(policy)
    with pod.exporter as exporter:
        prometheus.scrape(exporter.address)
        await scraped(prometheus, pod, "c0", 0)
        pod.serve("c0", good=100, bad=0)
        await scraped(prometheus, pod, "c0", 100)
        total = 'giveway_time_to_first_token_seconds_bucket{class="c0",le="+Inf"} 100\n'
        assert total in exporter.text
        exporter.text = exporter.text.replace(total, total.replace(" 100", f" {value}"))
        series = 'giveway_time_to_first_token_seconds_bucket{class="c0",le="+Inf"}'
        selected = series.replace("}", f',instance="{exporter.address}"}}')
        await until(
            lambda: prometheus.query(f"{selected} != 100 or {selected} != {selected}"),
            what=value,
        )
        found = await observer.observe(POLICY, policy)
        assert found[0].attained_ratio is None or 0.0 <= found[0].attained_ratio <= 1.0
        if value in ("NaN", "+Inf"):
            assert states(found) == [ObservationState.QUERY_FAILED]
