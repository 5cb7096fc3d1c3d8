"""Where is the engine?"""

from dataclasses import dataclass
from urllib.parse import urlsplit


class UpstreamError(ValueError):
    """The engine's URL can't be used; the message says why and what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Where the engine is."""

    host: str
    port: int
    secure: bool
    prefix: str
    """Path before all of its paths, without a slash at the end."""

    @property
    def authority(self) -> str:
        """For the `Host` header."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if self.port == (443 if self.secure else 80) else f"{shown}:{self.port}"


def parse_upstream(url: str) -> Upstream:
    """Raises `UpstreamError`."""
    example = "for example http://127.0.0.1:8000"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UpstreamError(f"{error}; {example}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UpstreamError(f"it has to begin with http:// or https:// and name a host, {example}")
    if parts.query or parts.fragment or parts.username or parts.password:
        raise UpstreamError(f"it may have a path but no user, query or fragment, {example}")
    secure = parts.scheme == "https"
    return Upstream(
        host=parts.hostname,
        port=port or (443 if secure else 80),
        secure=secure,
        prefix=parts.path.rstrip("/"),
    )
