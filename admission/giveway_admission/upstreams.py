"""Where is the engine?"""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(?:%[A-Za-z0-9._-]+)?")
"""A name, or an address of IPv4 or IPv6 with its zone."""
_PREFIX = re.compile(r"[\x21-\x7e]*")


class UpstreamError(ValueError):
    """The engine's URL can't be used; the message says why and what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """Where the engine is. All of it is ASCII, and fit for a request line."""

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
        url = url.strip()
        parts = urlsplit(url)
        port = parts.port
        host = _as_ascii(parts.hostname or "")
    except ValueError as error:
        raise UpstreamError(f"{error}; {example}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise UpstreamError(f"it has to begin with http:// or https:// and name a host, {example}")
    if parts.query or parts.fragment or parts.username or parts.password:
        raise UpstreamError(f"it may have a path but no user, query or fragment, {example}")
    if not _HOST.fullmatch(host):
        raise UpstreamError(f"{host!r} is neither a host's name nor an address, {example}")
    if not _PREFIX.fullmatch(parts.path) or any(sign in url for sign in "\t\r\n"):
        # `urlsplit` leaves tabs and line ends out of `parts`, as if they were not there
        raise UpstreamError(f"its path has to be ASCII without spaces (ä is %C3%A4), {example}")
    if parts.path.rstrip("/").endswith("/v1"):  # clients' base URLs have it, and so has every path
        raise UpstreamError(f"leave /v1 off: the clients' paths begin with it, {example}")
    if port == 0:
        raise UpstreamError(f"nobody listens on port 0, {example}")
    secure = parts.scheme == "https"
    return Upstream(
        host=host,
        port=port or (443 if secure else 80),
        secure=secure,
        prefix=parts.path.rstrip("/"),
    )


def _as_ascii(host: str) -> str:
    """The name as resolvers know it. Raises `ValueError` for one that no host can have."""
    if not host or ":" in host:
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError(f"{host!r} is no host's name") from None
