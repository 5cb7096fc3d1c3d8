"""Whatever the policy's checks let through, the scheduler can work with."""

import random

import pytest
from giveway_admission.runtime_policies import RuntimePolicy
from giveway_policy.compiling import Candidate, compile_policies
from giveway_policy.faults import Origin, ResourceKey
from giveway_scheduler import Scheduler
from hypothesis import given, settings

from tests.policy.policy_texts import valid_policy, valid_tenant
from tests.policy.resource_strategies import policies, tenants


@pytest.mark.slow
@settings(deadline=None)
@given(policy=policies(), tenant=tenants("acme"))
def test_no_policy_that_passes_its_checks_is_one_the_scheduler_refuses(
    policy: dict[str, object], tenant: dict[str, object]
) -> None:
    """D07: a reload is refused where its author is told, not where the process would end."""
    origin = Origin(file="x")
    resource = valid_policy(policy)
    compilation = compile_policies(
        [Candidate(resource=resource, key=ResourceKey("SLOPolicy", "", "chat"), origin=origin)],
        [
            Candidate(
                resource=valid_tenant(tenant),
                key=ResourceKey("TenantPriority", "", "acme"),
                origin=origin,
            )
        ],
    )
    assert compilation.faults == ()
    runtime = RuntimePolicy.build(compilation.documents[0])
    scheduler = Scheduler(runtime.settings, now_s=0.0, generator=random.Random(0))
    statistics = scheduler.statistics(now_s=0.0)
    assert [each.name for each in statistics.classes] == [
        each.name for each in resource.spec.classes
    ]
