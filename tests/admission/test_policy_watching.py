"""A change takes effect in time, once, and never half."""

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from giveway_admission.local_policies import LocalPolicies
from giveway_admission.mounted_documents import MountedDocuments
from giveway_admission.policy_sources import Fingerprint, PolicySource, SourceReading
from giveway_admission.policy_watching import INTERVAL_S, MOST_ATTEMPTS, MOST_DEFERRALS, PolicyWatch
from giveway_policy.defaults import default_document
from giveway_policy.documents import PolicyDocument, renumber
from giveway_policy.faults import Fault, FaultKind, PolicyError

from tests.admission.policy_folders import MountedConfigMap, document_text, policy
from tests.support.waiting import until


@dataclass
class Heard:
    """What the watch said, in order."""

    documents: list[PolicyDocument] = field(default_factory=list)
    faults: list[tuple[Fault, ...]] = field(default_factory=list)

    @property
    def weight(self) -> int | None:
        return self.documents[-1].spec.classes[0].weight if self.documents else None


def _watch(source: PolicySource) -> tuple[PolicyWatch, Heard]:
    heard = Heard()
    return PolicyWatch(
        source, on_change=heard.documents.append, on_fault=heard.faults.append
    ), heard


@asynccontextmanager
async def _running(watch: PolicyWatch) -> AsyncIterator[None]:
    task = asyncio.create_task(watch.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _until_generation(heard: Heard, generation: int) -> None:
    await until(
        lambda: heard.documents and heard.documents[-1].generation == generation,
        what=f"generation {generation}",
    )


class ScriptedSource:
    """Says what it is told to: a document's generation, and how the place changes meanwhile."""

    needs_policy_at_start = False

    def __init__(self) -> None:
        self.state = 0
        self.moving_by = 0
        """How much the place changes with every look."""
        self.readings = 0
        self.fault: Fault | None = None

    def fingerprint(self, last: SourceReading) -> Fingerprint:
        self.state += self.moving_by
        return ((self.state,),)

    def read(self, last: SourceReading) -> SourceReading:
        self.readings += 1
        document = renumber(default_document(), epoch=1, generation=self.state)
        return SourceReading(document=document, faults=(self.fault,) if self.fault else ())


async def _looks(watch: PolicyWatch, count: int) -> None:
    for _ in range(count):
        await watch.look()


async def test_a_change_is_read_once_it_stood_still_and_then_once_more() -> None:
    """Nothing half written is taken; a change within one tick of the disk's clock is not lost."""
    source = ScriptedSource()
    watch, heard = _watch(source)
    watch.start()
    await _looks(watch, 3)
    settled = source.readings
    await _looks(watch, 3)
    assert source.readings == settled
    source.state = 5
    await watch.look()
    assert heard.documents == []
    await watch.look()
    assert [each.generation for each in heard.documents] == [5]
    await _looks(watch, 4)
    assert source.readings == settled + 2
    assert len(heard.documents) == 1


async def test_a_place_that_never_stands_still_is_read_all_the_same() -> None:
    """A program that writes all the time does not keep a policy out for ever."""
    source = ScriptedSource()
    watch, heard = _watch(source)
    watch.start()
    source.moving_by = 1
    await _looks(watch, (MOST_DEFERRALS + 1) + MOST_ATTEMPTS + 1)
    assert heard.documents


async def test_a_reading_during_which_something_changed_is_thrown_away() -> None:
    """D03: no read of a half state."""

    class SwappedMeanwhile(ScriptedSource):
        def read(self, last: SourceReading) -> SourceReading:
            reading = super().read(last)
            if self.readings == 2:
                self.state = 7
            return reading

    source = SwappedMeanwhile()
    watch, heard = _watch(source)
    watch.start()
    source.state = 5
    await _looks(watch, 4)
    assert [each.generation for each in heard.documents] == [7]


async def test_a_document_that_cannot_be_put_in_force_leaves_the_former_one() -> None:
    """D07: no reload ends the process; the next good document takes effect."""
    source = ScriptedSource()
    taken: list[int] = []
    faults: list[tuple[Fault, ...]] = []

    def take(document: PolicyDocument) -> None:
        if document.generation == 5:
            raise RuntimeError("no")
        taken.append(document.generation)

    watch = PolicyWatch(source, on_change=take, on_fault=faults.append)
    first = watch.start()
    source.state = 5
    await _looks(watch, 4)
    assert watch.statistics().document == first
    assert [each.kind for each in faults[-1]] == [FaultKind.NOT_APPLIED]
    source.state = 6
    await _looks(watch, 4)
    assert taken == [6]
    assert faults[-1] == ()


async def test_faults_are_told_when_they_change_and_when_they_are_gone() -> None:
    """D01: not at every look, and the end of them too."""
    source = ScriptedSource()
    watch, heard = _watch(source)
    watch.start()
    fault = Fault(kind=FaultKind.SYNTAX, file="x", reason="r", fix="f")
    for state, told in ((1, fault), (2, fault), (3, replace(fault, line=3)), (4, None)):
        source.state, source.fault = state, told
        await _looks(watch, 4)
    assert heard.faults == [(fault,), (replace(fault, line=3),), ()]


async def test_a_broken_source_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    """What should never happen is logged, and the next look is a new one."""

    class Broken(ScriptedSource):
        def fingerprint(self, last: SourceReading) -> Fingerprint:
            if self.state == 13:
                raise RuntimeError("no")
            return super().fingerprint(last)

    source = Broken()
    watch, heard = _watch(source)
    watch.start()
    source.state = 13
    await _looks(watch, 2)
    assert "looking for a change of the policy failed" in caplog.text
    source.state = 14
    await _looks(watch, 2)
    assert [each.generation for each in heard.documents] == [14]


def test_a_local_policy_with_a_fault_is_an_error_at_the_start(tmp_path: Path) -> None:
    """There is no last good version yet: file, line, path, reason and fix."""
    file = tmp_path / "policy.yaml"
    file.write_text(policy().replace("weight: 5", "weigth: 5"))
    watch, _ = _watch(LocalPolicies(file))
    with pytest.raises(PolicyError) as caught:
        watch.start()
    assert str(caught.value) == (
        f"{file}:7: spec.classes[1].weigth: is not a field here (did you mean weight?)"
    )


def test_a_missing_local_policy_is_an_error_at_the_start(tmp_path: Path) -> None:
    watch, _ = _watch(LocalPolicies(tmp_path / "nowhere"))
    with pytest.raises(PolicyError, match=r"nowhere: no such file or directory \(name a readable"):
        watch.start()


def test_a_missing_mount_is_the_default_and_a_reason_at_the_start(tmp_path: Path) -> None:
    """D08: a documented state, said once."""
    watch, heard = _watch(MountedDocuments(tmp_path / "nowhere"))
    assert watch.start() == default_document()
    assert [each.reason for each in heard.faults[0]] == ["no such file or directory"]


def test_two_seconds_are_enough() -> None:
    """One look to see a change, the deferrals, and half a second left for the reading."""
    assert INTERVAL_S * (1 + MOST_DEFERRALS) + 0.5 < 2


@pytest.mark.slow
async def test_every_edit_takes_effect_while_it_runs(tmp_path: Path) -> None:
    """D01, D07: valid, broken, gone, back to the former, changed; with the interval as shipped."""
    file = tmp_path / "policy.yaml"
    file.write_text(policy())
    watch, heard = _watch(LocalPolicies(file))
    watch.start()
    async with _running(watch):
        file.write_text(policy(60))
        await until(lambda: heard.weight == 60, what="the edit")
        file.write_text("a: [")
        await until(lambda: heard.faults and heard.faults[-1], what="the fault")
        file.unlink()
        await until(lambda: "no such file" in heard.faults[-1][0].reason, what="the loss")
        file.write_text(policy(60))
        await until(lambda: heard.faults[-1] == (), what="all well")
        file.write_text(policy(50))
        await until(lambda: heard.weight == 50, what="the next")
    assert [each.spec.classes[0].weight for each in heard.documents] == [60, 50]


@pytest.mark.slow
async def test_twenty_swaps_of_a_mount_end_with_the_last(tmp_path: Path) -> None:
    """D03: kubelet's way, in bursts, each former folder deleted at once; nothing half is read."""
    mounted = MountedConfigMap(tmp_path / "policy")
    mounted.swap({"chat.json": document_text()})
    watch, heard = _watch(MountedDocuments(mounted.folder))
    watch.start()
    async with _running(watch):
        for generation in range(2, 22):
            mounted.swap({"chat.json": document_text(generation=generation)})
            if generation % 5 == 1:
                await _until_generation(heard, generation)
    generations = [each.generation for each in heard.documents]
    assert generations == sorted(set(generations))
    assert generations[-1] == 21
    assert heard.faults == []


@pytest.mark.slow
async def test_a_mounted_folder_of_resources_follows_a_swap(tmp_path: Path) -> None:
    """D03: `--policy DIR` on a mounted ConfigMap of YAML."""
    mounted = MountedConfigMap(tmp_path / "policy")
    mounted.swap({"policy.yaml": policy()})
    watch, heard = _watch(LocalPolicies(mounted.folder))
    watch.start()
    async with _running(watch):
        mounted.swap({"policy.yaml": policy(60)})
        mounted.swap({"policy.yaml": policy(50)})
        await until(lambda: heard.weight == 50, what="the last swap")
        shutil.rmtree(mounted.folder)
        await until(lambda: heard.faults and heard.faults[-1], what="the fault")
    assert heard.weight == 50


async def test_looking_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    """A slow disk blocks a thread, not the requests."""

    class Slow(ScriptedSource):
        entered = asyncio.Event()
        loop = asyncio.get_running_loop()

        def read(self, last: SourceReading) -> SourceReading:
            if self.readings:
                self.loop.call_soon_threadsafe(self.entered.set)
                assert self.released.wait(timeout=20)
            return super().read(last)

        released = threading.Event()

    source = Slow()
    watch, heard = _watch(source)
    watch.start()
    source.state = 5
    await watch.look()
    looking = asyncio.create_task(watch.look())
    await source.entered.wait()
    assert heard.documents == []
    source.released.set()
    await looking
    assert len(heard.documents) == 1
