"""How does a command ask an API server something, and end?"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from giveway_operator.kube_client import ApiServer, load_configuration

Answer = TypeVar("Answer")


def ask_once(kubeconfig: Path | None, question: Callable[[ApiServer], Awaitable[Answer]]) -> Answer:
    """The question's answer. `kubeconfig` None: as kubectl finds it.

    Raises `ConfigurationError`, and whatever the question does: `KubeError`.
    """

    async def ask() -> Answer:
        api = ApiServer(load_configuration(kubeconfig))
        try:
            return await question(api)
        finally:
            api.close()

    return asyncio.run(ask())
