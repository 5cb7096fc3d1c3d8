"""The oldest and the newest are right whoever comes back, and nothing piles up."""

from giveway_scheduler import ClassName, ClassSettings, Kind, RequestKey, TenantName
from giveway_scheduler.arrivals import SLACK, Arrivals
from giveway_scheduler.classes import ServiceClass
from giveway_scheduler.entries import Entry
from giveway_scheduler.settings import TenantSettings
from giveway_scheduler.tenancy import Tenant
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.driving import request

CLASS = ServiceClass(
    ClassSettings(name=ClassName("one"), kind=Kind.BATCH, weight=1.0),
    rank=0,
    first_output_tokens=1,
    now_s=0.0,
)
TENANT = Tenant(TenantName("acme"), TenantSettings(), now_s=0.0)


def entry(order: int) -> Entry:
    """An entry that came as number `order`."""
    return Entry(request(order), order=order, service_class=CLASS, tenant=TENANT, now_s=0.0)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 12), max_size=80))
def test_order_of_arrival_holds_whoever_leaves_and_comes_back(orders: list[int]) -> None:
    """Each number comes if it is out and leaves if it is in; a sorted list says what is right."""
    arrivals = Arrivals()
    entries = {order: entry(order) for order in range(13)}
    inside: set[int] = set()
    for order in orders:
        if order in inside:
            arrivals.remove(entries[order])
        else:
            arrivals.add(entries[order])
        inside ^= {order}
        expected = sorted(inside)
        assert len(arrivals) == arrivals.count == len(expected)
        assert sorted(each.order for each in arrivals) == expected
        assert [each.order for each in arrivals.from_newest()] == expected[::-1]
        assert arrivals.oldest is (entries[expected[0]] if expected else None)
        assert arrivals.newest is (entries[expected[-1]] if expected else None)
        assert all((RequestKey(each) in arrivals) == (each in inside) for each in range(13))


def test_coming_back_again_and_again_leaves_nothing_behind() -> None:
    """1,000 requeues of one entry behind another: the heaps stay within their slack."""
    arrivals, old, new = Arrivals(), entry(1), entry(2)
    arrivals.add(new)
    arrivals.add(entry(0))
    for _ in range(1000):
        arrivals.add(old)
        arrivals.remove(old)
    assert len(arrivals._from_oldest) <= 2 * 2 + SLACK + 1
    assert len(arrivals._from_newest) <= 2 * 2 + SLACK + 1
