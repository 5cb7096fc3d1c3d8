"""Has a client gone from whom nothing is read?

While a large body stays in the client's socket, its connection is not read, and the event loop
would not notice that the client has hung up: its request would wait, and go to the engine, for
nobody. So the sockets that are not read are watched here for the peer's end alone, in an epoll set
of their own that wakes the event loop.
"""

import asyncio
import select
from collections.abc import Callable


class LeavingWatch:
    """Watches for hang-ups. Where the system has no epoll it watches nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._gone: dict[int, Callable[[], None]] = {}
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        if self._epoll is not None:
            loop.add_reader(self._epoll.fileno(), self._tell)

    def watch(self, transport: asyncio.Transport, gone: Callable[[], None]) -> int | None:
        """Call `gone` when the peer has ended its side; a handle for `unwatch`. None: can't."""
        socket = transport.get_extra_info("socket")
        if self._epoll is None or socket is None:
            return None
        handle = int(socket.fileno())
        self._epoll.register(handle, select.EPOLLRDHUP | select.EPOLLET)
        self._gone[handle] = gone
        return handle

    def unwatch(self, handle: int) -> None:
        if self._epoll is not None and self._gone.pop(handle, None) is not None:
            self._epoll.unregister(handle)

    def close(self) -> None:
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
            self._gone.clear()

    def _tell(self) -> None:
        if self._epoll is None:
            return
        for handle, _ in self._epoll.poll(0):
            gone = self._gone.get(handle)
            if gone is not None:
                gone()
