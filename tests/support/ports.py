"""Which ports are free?"""

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """So many different ports of the loopback that nobody listened on a moment ago."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]
