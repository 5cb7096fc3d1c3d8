"""How does a person, a probe or Prometheus look into the proxy, and end it?

The admin port, never the data port (G04). A handful of exact paths; anything else is 404. Nothing
here changes how requests are treated, but `/drain`.

    /metrics   Prometheus text
    /livez     200 while the event loop turns
    /readyz    200 or 503; the body says why not, which policy is in force, and its faults
    /drain     GET or POST: take nothing new, answer when all has ended or ?timeout=seconds is over
    /status    everything that the page shows, as JSON
    /          the page

Safe against pages of other sites in the browser of somebody who can reach this port: `/drain`
refuses what a browser marks as coming from another site, nothing allows reading across origins, and
the page may load nothing but its own `/status`.
"""

import base64
import hashlib
import hmac
import json
import logging
import math
import re
from collections.abc import Awaitable, Callable
from importlib.resources import files

from aiohttp import web

from giveway_admission.admin_status import AdminState, StatusWriter, policy_summary
from giveway_admission.exposition import CONTENT_TYPE
from giveway_admission.logs import clean_text, log_event

__all__ = ["AdminState", "make_admin_application"]

LONGEST_DRAIN_S = 86_400.0
DRAIN_TOKEN_HEADER = "X-Giveway-Drain-Token"  # noqa: S105 - the header's name
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Server": "giveway",
}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_logger = logging.getLogger(__name__)


def make_admin_application(state: AdminState) -> web.Application:
    """The admin port's application, to be run by whoever owns the loop."""
    application = web.Application(middlewares=[_answer_errors], client_max_size=64 * 1024)
    application.on_response_prepare.append(_add_headers)
    admin = _Admin(state)
    application.router.add_get("/metrics", admin.metrics)
    application.router.add_get("/livez", admin.livez)
    application.router.add_get("/readyz", admin.readyz)
    application.router.add_get("/drain", admin.drain, allow_head=False)
    application.router.add_post("/drain", admin.drain)
    application.router.add_get("/status", admin.status)
    application.router.add_get("/", admin.page)
    return application


class _Admin:
    """The handlers. Each fetches, lets a plain function decide, and answers."""

    def __init__(self, state: AdminState) -> None:
        self._state = state
        self._status = StatusWriter(state)
        self._page = files("giveway_admission").joinpath("admin_page.html").read_bytes()
        self._page_policy = content_security_policy(self._page)

    async def metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=self._state.metrics.render(), headers={"Content-Type": CONTENT_TYPE}
        )

    async def livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, _request: web.Request) -> web.Response:
        ready, reasons = self._state.ready()
        body = {
            "ready": ready,
            "reasons": [clean_text(reason) for reason in reasons],
            "policy": policy_summary(self._state),
        }
        return _json_answer(body, status=200 if ready else 503)

    async def status(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._status.write(), content_type="application/json")

    async def page(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=self._page,
            content_type="text/html",
            charset="utf-8",
            headers={"Content-Security-Policy": self._page_policy, "X-Frame-Options": "DENY"},
        )

    async def drain(self, request: web.Request) -> web.Response:
        if not may_drain(
            token=self._state.drain_token,
            presented=request.headers.getall(DRAIN_TOKEN_HEADER, []),
            site=request.headers.get("Sec-Fetch-Site"),
        ):
            log_event(_logger, logging.WARNING, "drain refused", peer=request.remote)
            return _json_answer({"error": f"{DRAIN_TOKEN_HEADER} is missing or wrong"}, status=403)
        try:
            timeout_s = drain_timeout_s(list(request.query.items()))
        except ValueError as error:
            return _json_answer({"error": str(error)}, status=400)
        drained = await self._state.drain(timeout_s)
        now = self._state.statistics()
        return _json_answer(
            {"drained": drained, "running": now.running, "queued": now.queued},
            status=200 if drained else 504,
        )


def may_drain(*, token: str | None, presented: list[str], site: str | None) -> bool:
    """Whether this request may end the proxy's work.

    `site` is the browser's Sec-Fetch-Site: absent for a program, `none` for a typed address.
    """
    if site not in (None, "none", "same-origin"):
        return False
    if token is None:
        return True
    if len(presented) != 1:
        return False
    return hmac.compare_digest(
        presented[0].encode("utf-8", "surrogateescape"), token.encode("utf-8", "surrogateescape")
    )


def drain_timeout_s(query: list[tuple[str, str]]) -> float | None:
    """Seconds of `?timeout=`. None: it was not given. Raises `ValueError` for anything else."""
    if not query:
        return None
    if len(query) > 1 or query[0][0] != "timeout":
        raise ValueError("the only parameter is timeout=SECONDS, once")
    try:
        value = float(query[0][1])
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= LONGEST_DRAIN_S:
        raise ValueError(f"timeout must be a number of seconds from 0 to {LONGEST_DRAIN_S:.0f}")
    return value


def content_security_policy(page: bytes) -> str:
    """Allow exactly the script and the style that stand in `page`, and reading from here."""

    def hashes(tag: bytes) -> str:
        blocks = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), page, re.DOTALL)
        digests = (base64.b64encode(hashlib.sha256(block).digest()).decode() for block in blocks)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    return (
        f"default-src 'none'; script-src {hashes(b'script')}; style-src {hashes(b'style')}; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _json_answer(body: object, *, status: int) -> web.Response:
    return web.Response(
        text=json.dumps(body) + "\n", status=status, content_type="application/json"
    )


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        response.headers[name] = value


@web.middleware
async def _answer_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Errors in one shape, and none of them with anything of ours or of the caller's in it."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        answer = _json_answer({"error": error.reason.lower()}, status=error.status)
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer
    except Exception as error:
        log_event(_logger, logging.ERROR, "admin request failed", path=request.path, error=error)
        return _json_answer({"error": "internal error"}, status=500)
