"""Whose weight means anything under the policy's algorithm?

`WeightedRandom` and `DeficitRoundRobin` share by weight among all classes. `SLOAware` does among
the classes between the first and batch, and among the batch classes: with the usual three there is
nobody to share with. `DynamicAging` and `InteractiveFirst` look at no weight. Where nobody shares,
weights would move without any effect, so they are not moved, and the status says why.
"""

from giveway_policy.enumerations import Algorithm, Kind
from giveway_policy.resources import SLOPolicySpec


def sharing(spec: SLOPolicySpec) -> frozenset[str]:
    """Classes that share with at least one other by weight."""
    match spec.scheduling.algorithm:
        case Algorithm.WEIGHTED_RANDOM | Algorithm.DEFICIT_ROUND_ROBIN:
            groups = [[each.name for each in spec.classes]]
        case Algorithm.SLO_AWARE:
            below = spec.classes[1:]
            groups = [[each.name for each in below if each.kind is kind] for kind in Kind]
        case Algorithm.DYNAMIC_AGING | Algorithm.INTERACTIVE_FIRST:
            groups = []
    return frozenset(name for group in groups if len(group) > 1 for name in group)


def weights_mean_something(spec: SLOPolicySpec) -> bool:
    """Whether a class that has objectives shares by weight."""
    shared = sharing(spec)
    return any(each.objectives and each.name in shared for each in spec.classes)
