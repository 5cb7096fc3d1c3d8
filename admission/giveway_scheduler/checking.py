"""Which settings cannot work at all?

The policy was checked for its author before; what is found here is a programming error.
"""

from giveway_scheduler.settings import Algorithm, Concurrency, Kind, Settings


def check_settings(settings: Settings) -> None:
    """Raise `ValueError` naming the first thing that cannot work."""
    if not settings.classes:
        raise ValueError("there is no class")
    names = [each.name for each in settings.classes]
    if len(set(names)) < len(names):
        raise ValueError(f"class names are not unique: {names}")
    for each in settings.classes:
        _check(each.weight >= 0.0, f"class {each.name}: weight {each.weight} is below 0")
        _check(each.queue_capacity >= 0, f"class {each.name}: queue capacity is below 0")
        _check(each.time_to_live_s >= 0.0, f"class {each.name}: time to live is below 0")
        _check(each.limits.in_flight is None, f"class {each.name}: in_flight is for tenants")
    for name, tenant in settings.tenants.items():
        _check(tenant.weight > 0.0, f"tenant {name}: weight {tenant.weight} is not above 0")
    _check_concurrency(settings)
    _check(0.0 <= settings.batch_token_floor_ratio < 1.0, "batch_token_floor_ratio not in [0, 1)")
    _check(settings.batch_token_floor_half_life_s > 0.0, "the floor's half-life is not above 0")
    _check(0.0 <= settings.cached_token_ratio <= 1.0, "cached_token_ratio is not in [0, 1]")
    _check(settings.output_token_weight >= 0.0, "output_token_weight is below 0")
    _check(settings.idle_tenants >= 0, "idle_tenants is below 0")


def _check_concurrency(settings: Settings) -> None:
    concurrency = settings.concurrency
    _check(concurrency.seats >= 1, "there is no seat")
    _check(concurrency.reserved_seats >= 0, "reserved_seats is below 0")
    if len(settings.classes) > 1:
        _check(
            concurrency.reserved_seats < concurrency.seats,
            f"all {concurrency.seats} seats are reserved for the first class",
        )
    _check(concurrency.batch_minimum >= 1, "batch_minimum below 1 starves batch (Y8)")
    _check(
        concurrency.batch_minimum <= concurrency.batch_maximum,
        f"batch_minimum {concurrency.batch_minimum} is above "
        f"batch_maximum {concurrency.batch_maximum}",
    )
    if settings.algorithm is Algorithm.INTERACTIVE_FIRST and _has_both_kinds(settings):
        _check_interactive_seat(concurrency)


def _check_interactive_seat(concurrency: Concurrency) -> None:
    _check(
        concurrency.batch_maximum < concurrency.seats,
        f"batch_maximum {concurrency.batch_maximum} leaves interactive requests none of "
        f"{concurrency.seats} seats (Y7)",
    )


def _has_both_kinds(settings: Settings) -> bool:
    return len({each.kind for each in settings.classes}) == len(Kind)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
