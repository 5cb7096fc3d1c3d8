"""The admin port's paths, asked over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import TestClient, TestServer
from giveway_admission.admin import make_admin_application
from giveway_admission.exposition import CONTENT_TYPE
from giveway_admission.logs import JSONLines
from giveway_admission.metrics import Metrics
from giveway_admission.outcomes import Outcome
from giveway_admission.recent_decisions import DecisionKind
from giveway_policy.defaults import default_spec
from giveway_policy.documents import PolicyName, make_document
from giveway_policy.faults import Fault, FaultKind
from giveway_scheduler import BucketStatistics, Statistics, Usage

from tests.admission.admin_support import (
    Clock,
    MadeUpState,
    Policy,
    class_statistics,
    engine_reading,
    statistics,
    tenant_statistics,
)
from tests.support.scraping import parse_samples

CANARY = "sk-CANARY0123456789abcdef"


@asynccontextmanager
async def asking(state: MadeUpState) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    async with TestClient(TestServer(make_admin_application(state))) as client:
        yield client


async def test_metrics_are_prometheus_text() -> None:
    """The page parses, and says what it is."""
    state = MadeUpState()
    state.metrics.arrived("realtime")
    async with asking(state) as client:
        answer = await client.get("/metrics")
        samples = parse_samples(await answer.text())
    assert answer.status == 200
    assert answer.headers["Content-Type"] == CONTENT_TYPE
    assert samples.value("giveway_requests_arrived_total", **{"class": "realtime"}) == 1


async def test_alive_while_the_loop_turns() -> None:
    """Nothing that can be mended by waiting makes it fail."""
    state = MadeUpState(reasons=["draining"], engine_up=False)
    async with asking(state) as client:
        answer = await client.get("/livez")
    assert answer.status == 200


async def test_ready_says_which_policy_is_in_force() -> None:
    """The built-in default is visible where somebody looks who wonders about their policy."""
    async with asking(MadeUpState()) as client:
        answer = await client.get("/readyz")
        body = await answer.json()
    assert answer.status == 200
    assert body["ready"] is True
    assert body["policy"]["built_in"] is True
    assert body["policy"]["name"] == "built-in"


async def test_policy_that_somebody_gave_is_not_built_in() -> None:
    """Even if it has the same content."""
    document = make_document(
        PolicyName(namespace="llm", name="chat"), default_spec(), epoch=4, generation=2
    )
    async with asking(MadeUpState(runtime_policy=Policy(document))) as client:
        body = await (await client.get("/readyz")).json()
    assert body["policy"]["built_in"] is False
    assert body["policy"]["name"] == "llm/chat"
    assert (body["policy"]["epoch"], body["policy"]["generation"]) == (4, 2)


@pytest.mark.parametrize("path", ["/readyz", "/status"])
async def test_what_stands_against_a_newer_policy_is_named(path: str) -> None:
    """Whoever wonders why an edit does nothing sees file, line and fix, and no credential; the
    proxy stays ready, since the last good policy is in force."""
    fault = Fault(
        kind=FaultKind.SCHEMA,
        file="policy.yaml",
        line=7,
        path="spec.classes[0].wieght",
        reason=f"is not a field here, password={CANARY}",
        fix="did you mean weight?",
        last_good_in_force=True,
    )
    async with asking(MadeUpState(policy_faults=(fault,))) as client:
        answer = await client.get(path)
        text = await answer.text()
    (told,) = json.loads(text)["policy"]["faults"]
    assert json.loads(text)["ready"] is True
    assert told.startswith("policy.yaml:7: spec.classes[0].wieght: is not a field here")
    assert told.endswith("its last good version stays in force")
    assert CANARY not in text


async def test_not_ready_says_why() -> None:
    """503 and the reasons, for a person and a probe."""
    async with asking(MadeUpState(reasons=["draining", "the engine does not answer"])) as client:
        answer = await client.get("/readyz")
        body = await answer.json()
    assert answer.status == 503
    assert body["reasons"] == ["draining", "the engine does not answer"]


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/metrics/",
        "/METRICS",
        "/v1/models",
        "/v1/chat/completions",
        "/status/../metrics/x",
        "/admin_page.html",
        "/favicon.ico",
        "/config",
        "/debug",
        "/" + "x" * 5000,
    ],
)
async def test_other_paths_are_not_found(path: str) -> None:
    """G04: a handful of paths and nothing else."""
    async with asking(MadeUpState()) as client:
        answer = await client.get(path)
        text = await answer.text()
    assert answer.status == 404
    assert json.loads(text) == {"error": "not found"}


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz", "/status", "/"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_looking_takes_no_other_method(path: str, method: str) -> None:
    """405 with the methods that are allowed."""
    async with asking(MadeUpState()) as client:
        answer = await client.request(method, path)
    assert answer.status == 405
    assert "GET" in answer.headers["Allow"]


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz", "/status", "/", "/nothing"])
async def test_every_answer_is_guarded(path: str) -> None:
    """Not kept, not guessed at, and it does not tell what software this is."""
    async with asking(MadeUpState()) as client:
        answer = await client.get(path)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Server"] == "giveway"
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET //metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + CANARY.encode() + b"\x00\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /drain HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /drain HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_bytes_that_are_no_request_are_a_client_error(
    raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Any bytes give a 4xx or a closed connection, and the port lives on."""
    async with asking(MadeUpState(drain_token="x")) as client:
        reader, writer = await asyncio.open_connection(client.host, client.port)
        writer.write(raw)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 10.0)
        writer.close()
        await writer.wait_closed()
        assert (await client.get("/livez")).status == 200
    assert answer == b"" or answer.split(b" ", 2)[1][:1] == b"4"
    written = "".join(JSONLines().format(record) for record in caplog.records)
    assert CANARY not in answer.decode("latin-1") + written


async def test_fault_of_ours_is_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """500 without a word of what went wrong; the log has its type and place."""

    class Broken(MadeUpState):
        def statistics(self) -> Statistics:
            raise ValueError(f"secret {CANARY}")

    async with asking(Broken()) as client:
        answer = await client.get("/status")
        text = await answer.text()
    assert answer.status == 500
    assert json.loads(text) == {"error": "internal error"}
    assert "admin request failed" in caplog.text
    assert CANARY not in text + caplog.text


async def test_status_tells_what_the_page_shows() -> None:
    """Classes, queues, seats, buckets, tenants, decisions, policy and engine."""
    clock = Clock()
    bucket = BucketStatistics(level=-3.5, burst=20.0, per_s=2.0)
    state = MadeUpState(
        metrics=Metrics(version="1.2.3", clock=clock),
        engine_reading=engine_reading(requests_total=5.0, kv_cache_usage_ratio=0.5),
        now=statistics(
            running=3,
            queued=2,
            classes=(class_statistics("realtime", running=3, queued=2, tokens=bucket),),
            tenants=(tenant_statistics("acme", running=3, requests=bucket),),
        ),
    )
    state.metrics.arrived("realtime")
    for after_s in (0.2, 0.4):
        state.metrics.first_token("realtime", after_s)
    state.metrics.ended(
        "realtime",
        "acme",
        Outcome.COMPLETED,
        duration_s=1.0,
        usage=Usage(prompt_tokens=9, output_tokens=4),
    )
    state.metrics.refused_early(Outcome.UNAUTHORIZED)
    state.recent_decisions.add(
        DecisionKind.REJECT, "realtime", tenant="acme", reason="class_tokens", request_name="r-1"
    )
    async with asking(state) as client:
        status = await (await client.get("/status")).json()
    assert status["version"] == "1.2.3"
    assert status["engine"] == {
        "up": True,
        "requests_total": 5.0,
        "preemptions_total": None,
        "kv_cache_usage_ratio": 0.5,
    }
    assert status["policy"]["built_in"] is True
    assert (status["scheduler"]["running"], status["scheduler"]["seats"]) == (3, 64)
    (realtime,) = status["classes"]
    assert realtime["kind"] == "Interactive"
    assert realtime["tokens"] == {"level": -3.5, "burst": 20.0, "per_s": 2.0}
    assert realtime["progress"]["outcomes"] == {"completed": 1}
    assert realtime["progress"]["tokens"]["completion"] == 4
    assert realtime["objectives"] == [
        {
            "indicator": "TimeToFirstToken",
            "threshold_s": 0.3,
            "target_percent": "99",
            "good": 1,
            "total": 2,
        }
    ]
    assert status["tenants"][0]["name"] == "acme"
    assert status["early"]["outcomes"] == {"unauthorized": 1}
    assert status["decisions"][0]["reason"] == "class_tokens"
    assert status["decisions"][0]["request_name"] == "r-1"


async def test_no_secret_comes_out_anywhere() -> None:
    """G03, G04: a key as tenant, request id, reason or drain token is on no page."""
    state = MadeUpState(drain_token=CANARY, reasons=[f"failed: Bearer {CANARY}"])
    state.now = statistics(tenants=(tenant_statistics(CANARY), tenant_statistics("a@b.example")))
    state.metrics.ended("realtime", CANARY, Outcome.COMPLETED, duration_s=1.0)
    state.recent_decisions.add(
        DecisionKind.REFUSE, "none", tenant=CANARY, reason=CANARY, request_name=CANARY
    )
    async with asking(state) as client:
        for path in ("/metrics", "/livez", "/readyz", "/status", "/", "/drain", f"/{CANARY}"):
            answer = await client.get(path, headers={"X-Api-Key": CANARY})
            text = await answer.text() + str(answer.headers)
            assert CANARY not in text, path
            assert "a@b.example" not in text, path


async def test_status_of_twenty_thousand_tenants_is_small() -> None:
    """C24: what the page fetches every second stays small."""
    tenants = tuple(tenant_statistics(f"tenant-{index}") for index in range(20_000))
    async with asking(MadeUpState(now=statistics(tenants=tenants))) as client:
        body = await (await client.get("/status")).read()
    assert len(json.loads(body)["tenants"]) == 100
    assert len(body) < 100_000


async def test_number_that_json_has_not_is_null() -> None:
    """The page's parser takes no NaN."""
    state = MadeUpState(now=statistics(pressure_ratio=float("nan")))
    async with asking(state) as client:
        text = await (await client.get("/status")).text()
    assert json.loads(text)["scheduler"]["pressure_ratio"] is None
    assert "NaN" not in text
