"""A state machine that does to a scheduler whatever a shell, its clients and its operator may do.

After every call the model (`machine_model_support.py`) has followed each decision, and the checks
(`machine_checks_support.py`) hold; all calls go to twins (`machine_twins_support.py`).
"""

from dataclasses import replace
from typing import ClassVar

from giveway_scheduler import Decision, RequestKey, Settings, Usage
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.scheduler.machine_calls_support import (
    Advance,
    Call,
    Cancel,
    Configure,
    EngineIs,
    Finish,
    FirstToken,
    Offer,
    Preempted,
    Requeue,
)
from tests.scheduler.machine_checks_support import (
    check_announces,
    check_nothing_left,
    check_statistics,
    check_windows,
    check_work_conserving,
)
from tests.scheduler.machine_model_support import Model
from tests.scheduler.machine_settings_support import (
    all_settings,
    chains,
    changed,
    giving_way,
    one_of,
    plain_requests,
    requests,
    usages,
)
from tests.scheduler.machine_twins_support import Twins

UNKNOWN = 10**9
LONGEST_LIFE_S = 1000.0
"""Above every time to live that is drawn."""

places = st.integers(0, 7)
"""Which of the running or waiting ones: counted from the oldest, around."""


class SchedulerMachine(RuleBasedStateMachine):
    """Twins, a model, and everything that may happen to them."""

    steps: ClassVar[int] = 0
    """Rules executed by all machines together."""

    twins: Twins
    model: Model
    peak: int = 0
    is_sound: bool = True
    """Nothing was found yet; else what follows would only hide it."""

    @initialize(
        settings=st.one_of(giving_way(), all_settings(), all_settings()),
        now_s=one_of(0.0, 123_456.789),
        seed=st.integers(0, 99),
    )
    def start(self, settings: Settings, now_s: float, seed: int) -> None:
        self.twins = Twins(settings, now_s=now_s, seed=seed)
        statistics = self.twins.jumping.statistics(now_s=now_s)
        self.model = Model(settings=settings, now_s=now_s, statistics=statistics)

    @rule(data=st.data(), count=one_of(1, 1, 2, 6))
    def offer(self, data: st.DataObject, count: int) -> None:
        SchedulerMachine.steps += 1
        first = data.draw(requests(self.model.offered + 1))
        for key in range(first.key, first.key + count):
            self._call(Offer(replace(first, key=RequestKey(key))))

    @rule(data=st.data(), count=st.integers(2, 7))
    def offer_crowd(self, data: st.DataObject, count: int) -> None:
        SchedulerMachine.steps += 1
        for _ in range(count):
            self._call(Offer(data.draw(plain_requests(self.model.offered + 1))))

    @rule(data=st.data())
    def offer_chain(self, data: st.DataObject) -> None:
        SchedulerMachine.steps += 1
        for request in data.draw(chains(self.model.offered + 1)):
            self._call(Offer(request))

    @precondition(lambda self: self.model.running())
    @rule(place=places)
    def first_token(self, place: int) -> None:
        SchedulerMachine.steps += 1
        self._call(FirstToken(self._running(place)))

    @precondition(lambda self: self.model.running())
    @rule(place=places, output=one_of(20, 1, 256))
    def finish_truly(self, place: int, output: int) -> None:
        SchedulerMachine.steps += 1
        key = self._running(place)
        prompt = self.model.live[key].request.prompt_tokens
        self._call(FirstToken(key))
        self._call(Finish(key, Usage(prompt_tokens=prompt, output_tokens=output)))

    @precondition(lambda self: self.model.running())
    @rule(place=places, usage=usages())
    def finish(self, place: int, usage: Usage | None) -> None:
        SchedulerMachine.steps += 1
        self._call(Finish(self._running(place), usage))

    @precondition(lambda self: self.model.live)
    @rule(place=places, usage=usages())
    def cancel(self, place: int, usage: Usage | None) -> None:
        SchedulerMachine.steps += 1
        keys = [each.request.key for each in self.model.live.values()]
        self._call(Cancel(keys[place % len(keys)], usage))

    @precondition(lambda self: self.model.running())
    @rule(place=places, goes_down=st.booleans(), comes_up=st.booleans())
    def requeue(self, place: int, goes_down: bool, comes_up: bool) -> None:
        SchedulerMachine.steps += 1
        key = self._running(place)
        if goes_down:
            self._call(EngineIs(False))
        self._call(Requeue(key))
        if comes_up:
            self._call(EngineIs(True))

    @rule(available=one_of(True, True, True, False))
    def engine(self, available: bool) -> None:
        SchedulerMachine.steps += 1
        self._call(EngineIs(available))

    @rule(count=one_of(1, 0, 5))
    def preemptions(self, count: int) -> None:
        SchedulerMachine.steps += 1
        self._call(Preempted(count))

    @rule(data=st.data(), is_all_new=one_of(False, False, False, True))
    def configure(self, data: st.DataObject, is_all_new: bool) -> None:
        SchedulerMachine.steps += 1
        strategy = all_settings() if is_all_new else changed(self.model.settings)
        self._configure(data.draw(strategy))

    @rule(seconds=one_of(0.2, 0.001, 0.03, 1.0))
    def wait(self, seconds: float) -> None:
        SchedulerMachine.steps += 1
        self._wait(seconds)

    @rule(seconds=one_of(1.3, 3.1, 7.0, 20.0))
    def wait_long(self, seconds: float) -> None:
        SchedulerMachine.steps += 1
        self._wait(seconds)

    @rule(seconds=one_of(0.3, 1.0, 5.0, 70.0, 5000.0, 1e6), wakes=st.booleans())
    def oversleep(self, seconds: float, wakes: bool) -> None:
        """The shell is late, as after a suspended machine; what it does then is the next call."""
        SchedulerMachine.steps += 1
        self.twins.oversleep(self.twins.now_s + seconds)
        if wakes:
            self._call(Advance())

    def teardown(self) -> None:
        """Let everything end; then every arrival has exactly one outcome."""
        if not hasattr(self, "model") or not self.is_sound:
            return
        self._talk_of_strangers()
        self._call(EngineIs(True))
        for _ in range(2 * len(self.model.live)):
            if not self.model.running():
                break
            self._call(Finish(self._running(0), None))
        self._wait(LONGEST_LIFE_S)
        while self.model.running():
            self._call(Finish(self._running(0), None))
        check_nothing_left(self.model, self.twins.jumping, peak=self.peak)
        check_windows(self.model)

    def _talk_of_strangers(self) -> None:
        stranger = RequestKey(UNKNOWN)
        for call in (
            FirstToken(stranger),
            Finish(stranger, None),
            Cancel(stranger, None),
            Requeue(stranger),
        ):
            self._call(call)

    def _running(self, place: int) -> RequestKey:
        running = self.model.running()
        return running[place % len(running)].request.key

    def _configure(self, settings: Settings) -> None:
        """Nothing that waits is lost but what outlived its new time to live."""
        before = set(self.model.live)
        decisions = self._call(Configure(settings))
        ended = before - set(self.model.live)
        assert all(self.model.outcomes[key] == "expire" for key in ended), decisions

    def _wait(self, seconds: float) -> None:
        for decisions in self.twins.passing(self.twins.now_s + seconds):
            self._observe(Advance(), decisions)

    def _call(self, call: Call) -> tuple[Decision, ...]:
        self.is_sound = False
        decisions = self.twins.call(call)
        self._observe(call, decisions)
        return decisions

    def _observe(self, call: Call, decisions: tuple[Decision, ...]) -> None:
        self.is_sound = False
        now_s = self.twins.now_s
        statistics = self.twins.jumping.statistics(now_s=now_s)
        if self.model.observe(call, decisions, now_s=now_s, statistics=statistics):
            check_statistics(self.model, statistics)
            check_work_conserving(self.model)
            check_announces(self.model, self.twins.jumping)
        self.peak = max(self.peak, len(self.model.live))
        self.is_sound = True
