"""What does the usual aiohttp proxy cost? The yardstick that every reader knows.

An `Application` with one catch-all handler and a `ClientSession`: read the body, send it on, copy
the answer chunk by chunk. uvloop, no connection limit, no time limit: what one writes after having
read the documentation, and no more.

    python common_proxy.py PORT ENGINE_URL
"""

import sys
from collections.abc import AsyncIterator

import aiohttp
import uvloop
from aiohttp import web

_SESSION = web.AppKey("session", aiohttp.ClientSession)
_ENGINE = web.AppKey("engine", str)
_NOT_PASSED_ON = frozenset(
    {"connection", "content-length", "host", "keep-alive", "transfer-encoding", "upgrade"}
)


def _passed_on(headers: "aiohttp.typedefs.LooseHeaders") -> dict[str, str]:
    return {
        str(name): str(value)
        for name, value in dict(headers).items()
        if str(name).lower() not in _NOT_PASSED_ON
    }


async def _pass_on(request: web.Request) -> web.StreamResponse:
    body = await request.read()
    async with request.app[_SESSION].request(
        request.method,
        request.app[_ENGINE] + request.path_qs,
        headers=_passed_on(request.headers),
        data=body,
    ) as answer:
        response = web.StreamResponse(status=answer.status, headers=_passed_on(answer.headers))
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
    return response


async def _session(app: web.Application) -> AsyncIterator[None]:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=False
    ) as session:
        app[_SESSION] = session
        yield


def main() -> None:
    port, engine = sys.argv[1:]
    app = web.Application(client_max_size=64 * 2**20)
    app[_ENGINE] = engine
    app.cleanup_ctx.append(_session)
    app.router.add_route("*", "/{path:.*}", _pass_on)
    uvloop.install()
    web.run_app(app, host="127.0.0.1", port=int(port), access_log=None, print=None, backlog=4096)


if __name__ == "__main__":
    main()
