"""Any resource that is right, for properties: plain values as they come out of YAML."""

from hypothesis import strategies as st

from tests.policy.policy_texts import policy_with, tenant_with

CLASS_NAMES = ("realtime", "standard", "batch", "a", "b-1")

percents = st.one_of(
    st.integers(min_value=1, max_value=99).map(str),
    st.decimals(min_value="0.0001", max_value="99.9999", places=4).map(str),
)
decimals = st.decimals(min_value="0.001", max_value="999999", places=3).map(str)
ratios = st.decimals(min_value="0.01", max_value="1", places=2).map(str)


def _limits(*, tenant: bool = False) -> st.SearchStrategy[dict[str, object]]:
    rate = st.integers(min_value=1, max_value=100_000)
    with_rate = st.fixed_dictionaries(
        {"requestsPerSecond": rate}, optional={"requestBurst": rate, "tokensPerMinute": rate}
    )
    slow = st.fixed_dictionaries({"requestsPerMinute": rate}, optional={"requestBurst": rate})
    return st.one_of(
        with_rate,
        slow,
        st.fixed_dictionaries({"tokensPerMinute": rate}, optional={"tokenBurst": rate}),
        st.just({"requestsPerSecond": 0}),
        st.just({"inFlight": 3} if tenant else {}),
    )


def _objectives() -> st.SearchStrategy[list[dict[str, object]]]:
    timed = st.fixed_dictionaries(
        {
            "indicator": st.sampled_from(
                ["TimeToFirstToken", "InterTokenLatency", "RequestDuration", "QueueWait"]
            ),
            "thresholdMilliseconds": st.integers(min_value=1, max_value=60_000),
            "targetPercent": percents,
        }
    )
    errors = st.fixed_dictionaries({"indicator": st.just("ErrorRate"), "targetPercent": percents})
    return st.lists(
        st.one_of(timed, errors),
        max_size=3,
        unique_by=lambda each: (str(each["indicator"]), str(each.get("thresholdMilliseconds"))),
    )


def _class(name: str) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries(
        {"name": st.just(name), "kind": st.sampled_from(["Interactive", "Batch"])},
        optional={
            "weight": st.integers(min_value=1, max_value=1000),
            "limits": _limits(),
            "overLimit": st.sampled_from(["Reject", "Queue"]),
            "queue": st.fixed_dictionaries(
                {},
                optional={
                    "capacity": st.integers(min_value=0, max_value=10_000),
                    "timeToLiveSeconds": st.integers(min_value=1, max_value=10_000),
                },
            ),
            "objectives": _objectives(),
            "deadbandPercent": percents,
        },
    )


@st.composite
def policies(draw: st.DrawFn) -> dict[str, object]:
    """An SLOPolicy without a fault. Its classes are a beginning of `CLASS_NAMES`."""
    names = CLASS_NAMES[: draw(st.integers(min_value=1, max_value=len(CLASS_NAMES)))]
    chosen = st.sampled_from(names)
    seats = draw(st.integers(min_value=2, max_value=500))
    source = st.fixed_dictionaries(
        {"source": st.text("abcdef-./:0", min_size=1, max_size=9).map("s".__add__), "class": chosen}
    )
    optional: dict[str, st.SearchStrategy[object]] = {
        "mode": st.sampled_from(["Enforce", "Observe"]),
        "selector": st.just({"matchLabels": {"app.kubernetes.io/name": "vllm"}}),
        "sources": st.lists(source, max_size=4, unique_by=lambda each: str(each["source"])),
        "preemption": st.sampled_from(["None", "Engine", "AbortBeforeFirstToken"]),
        "scheduling": st.fixed_dictionaries(
            {
                "algorithm": st.sampled_from(
                    ["SLOAware", "WeightedRandom", "DeficitRoundRobin", "DynamicAging"]
                )
            },
            optional={
                "weightedRandom": st.just({"shareUnit": "Requests"}),
                "interactiveFirst": st.fixed_dictionaries(
                    {"smoothing": ratios},
                    optional={
                        "latencySignal": st.sampled_from(["FirstToken", "EndToEnd"]),
                        "rateSignal": st.sampled_from(["Finished", "Arrived"]),
                    },
                ),
                "sloAware": st.fixed_dictionaries({"batchTokenFloorPercent": percents}),
                "dynamicAging": st.fixed_dictionaries(
                    {
                        "classes": st.fixed_dictionaries(
                            {"class": chosen, "base": decimals, "agingPerMillisecond": decimals}
                        ).map(lambda each: [each])
                    }
                ),
            },
        ),
        "concurrency": st.fixed_dictionaries(
            {"seats": st.just(seats)},
            optional={
                "reservedSeats": st.integers(min_value=0, max_value=seats - 1),
                "promptGateTokens": st.integers(min_value=0, max_value=100_000),
            },
        ),
        "identity": st.fixed_dictionaries(
            {"fallbackClass": chosen},
            optional={"trustedHeaders": st.just(["X-Giveway-Class"])},
        ),
        "queue": st.fixed_dictionaries(
            {}, optional={"bytes": st.sampled_from(["512Mi", "1Gi", 4096, "77Ki"])}
        ),
        "antiStarvation": st.fixed_dictionaries({"enabled": st.booleans()}),
    }
    fields = draw(st.fixed_dictionaries({}, optional=optional))
    return policy_with(**{"classes": [draw(_class(name)) for name in names], **fields})


@st.composite
def tenants(draw: st.DrawFn, name: str) -> dict[str, object]:
    """A TenantPriority of this name that fits every policy of `policies`."""
    optional: dict[str, st.SearchStrategy[object]] = {
        "weight": st.integers(min_value=1, max_value=100),
        "limits": _limits(tenant=True),
        "sources": st.just([{"source": "nightly", "class": CLASS_NAMES[0]}]),
        "recognizedBy": st.just([{"header": {"name": "X-Tenant", "value": name}}]),
    }
    fields = draw(st.fixed_dictionaries({}, optional=optional))
    value = tenant_with(tenant=name, maximumClass=CLASS_NAMES[0], **fields)
    value["metadata"] = {"name": name}
    return value
