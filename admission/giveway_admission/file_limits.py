"""How many clients may be here at once, as far as open files go?

Each client takes two file descriptors, one of them for its request at the engine. Some more are
needed for whatever else there is: the admin port, probes, the policy, tickets, clients that are
being told that there is no place.
"""

import logging
import resource

from giveway_admission.logs import log_event

_logger = logging.getLogger(__name__)

_SPARE_FILES = 128
"""Not for clients and their connections to the engine."""
_LEAST_CLIENTS = 16
"""With fewer than these beside what is spare, descriptors run out before clients are refused."""
_LEAST_FILES = _SPARE_FILES + 2 * _LEAST_CLIENTS


class TooFewFilesError(Exception):
    """Nothing can be served with so few files; the message says what to do."""


def clients_for_files(soft: int, *, wanted: int) -> int:
    """How many of the `wanted` clients a limit of `soft` open files lets in. Raises
    `TooFewFilesError`."""
    if soft < _LEAST_FILES:
        raise TooFewFilesError(
            f"only {soft} files may be open at once here; a proxy needs {_LEAST_FILES} at least, "
            f"and {2 * wanted + _SPARE_FILES} for {wanted} clients. Raise the limit (ulimit -n)."
        )
    return min(wanted, (soft - _SPARE_FILES) // 2)


def raise_file_limit(*, wanted: int) -> int:
    """Raise the limit as far as it may be; how many of the `wanted` clients can be let in then.
    Raises `TooFewFilesError`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft < hard:
        raised = hard if hard != resource.RLIM_INFINITY else max(soft, 2 * wanted + _SPARE_FILES)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        except (OSError, ValueError):
            pass
    allowed = clients_for_files(soft, wanted=wanted)
    if allowed < wanted:
        log_event(
            _logger,
            logging.WARNING,
            "fewer clients than wanted",
            clients=allowed,
            wanted=wanted,
            fix=f"raise the limit of open files (ulimit -n) from {soft} to "
            f"{2 * wanted + _SPARE_FILES}",
        )
    return allowed
