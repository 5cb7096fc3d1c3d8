"""What may the sender still use?

OpenAI's `x-ratelimit-*` headers, told of the bucket that is tighter: the class's or the tenant's.
`limit` is what the bucket can hold, `remaining` what is in it now (never below 0, although it can
owe), `reset` when it is full again if nothing more is taken.
"""

from giveway_scheduler import BucketStatistics, Quota

_LONGEST_RESET_S = 24 * 3600.0


def quota_lines(quota: Quota) -> bytes:
    """Whole header lines."""
    lines = b""
    if quota.requests is not None:
        lines = _lines(b"requests", quota.requests)
    if quota.tokens is not None:
        lines += _lines(b"tokens", quota.tokens)
    return lines


def _lines(kind: bytes, bucket: BucketStatistics) -> bytes:
    level = bucket.level
    missing = bucket.burst - level
    reset_s = missing / bucket.per_s if bucket.per_s > 0.0 else _LONGEST_RESET_S
    return (
        b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %d\r\nx-ratelimit-reset-%b: %b\r\n"
        % (kind, bucket.burst, kind, level if level > 0.0 else 0, kind, show_duration(reset_s))
    )


def show_duration(seconds: float) -> bytes:
    """As OpenAI writes it: `0s`, `120ms`, `7.66s`, `6m0s`, `2h3m0s`."""
    if seconds <= 0.0:
        return b"0s"
    seconds = min(seconds, _LONGEST_RESET_S)
    if seconds < 1.0:
        return b"%dms" % (seconds * 1000 + 0.999)
    if seconds < 60.0:
        return (f"{seconds:.2f}".rstrip("0").rstrip(".") + "s").encode("ascii")
    minutes, rest = divmod(int(seconds + 0.999), 60)
    hours, minutes = divmod(minutes, 60)
    return b"%dh%dm%ds" % (hours, minutes, rest) if hours else b"%dm%ds" % (minutes, rest)
