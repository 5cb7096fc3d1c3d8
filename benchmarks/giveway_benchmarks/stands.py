"""A load program and the proxies before its engine, each on its core."""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from giveway_benchmarks.load_program import Group, LoadProgram
from giveway_benchmarks.processes import allow_files, first_in_line, free_port, pinned
from giveway_benchmarks.proxies import FILES, Kind, Proxy

LOAD_CORE, PROXY_CORE = 0, 1
DIRECT = "direct"
CREDENTIALS = {"Authorization": "Bearer sk-benchmark"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """What runs."""

    load: LoadProgram
    proxies: Mapping[str, Proxy]
    realtime: bool
    """The load and the proxy that is measured go before everything else of the machine."""

    def port(self, name: str) -> int:
        return self.load.engine_port if name == DIRECT else self.proxies[name].port

    def pids(self, name: str) -> list[int]:
        return [] if name == DIRECT else self.proxies[name].pids()

    def patience(self, name: str) -> float:
        return 1.0 if name == DIRECT else self.proxies[name].kind.patience

    @contextlib.contextmanager
    def undisturbed(self, name: str) -> Iterator[None]:
        with first_in_line([self.load.pid, *self.pids(name)], wanted=self.realtime):
            yield


@contextlib.contextmanager
def stand(kinds: Sequence[Kind], *, seats: int, realtime: bool = False) -> Iterator[Stand]:
    """Start all; each has answered a request when this begins."""
    allow_files(FILES)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        load = stack.enter_context(LoadProgram(engine_port=free_port(), prefix=pinned(LOAD_CORE)))
        proxies: dict[str, Proxy] = {}
        for kind in kinds:
            proxies[kind.name] = Proxy(
                kind,
                folder=folder / kind.name,
                engine_port=load.engine_port,
                core=PROXY_CORE,
                seats=seats,
            )
            stack.callback(proxies[kind.name].stop)
        for proxy in proxies.values():
            _wait_until_it_answers(proxy, load)
        yield Stand(load=load, proxies=proxies, realtime=realtime)


def _wait_until_it_answers(proxy: Proxy, load: LoadProgram) -> None:
    proxy.wait_until_it_listens()
    until_s = time.monotonic() + proxy.kind.start_within_s
    one = Group(clients=1, plan="answer", arrivals="once", headers=CREDENTIALS)
    while True:
        result = load.run([one], port=proxy.port, warm_s=0.0, window_s=0.1)
        if result.groups[0].all_answers == 1:
            return
        if time.monotonic() > until_s:
            problems = result.groups[0].problems
            raise TimeoutError(f"{proxy.kind.name} does not answer: {problems}\n{proxy.log_end()}")
        time.sleep(0.2)
