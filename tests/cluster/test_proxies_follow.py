"""From kubectl apply to what a real proxy does: by the watch, by the mount, and without either."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cluster.conftest import USERS
from tests.cluster.places import KEY, Place, ready, until_ready
from tests.support.control_plane import ControlPlane
from tests.support.processes import Emulator, Proxy
from tests.support.raw_client import ask
from tests.support.scraping import scrape
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

BODY = {"model": "emulated", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}


@pytest.fixture
def watcher(place: Place) -> Path:
    """The token of somebody who may watch the one ConfigMap, as docs/operator.md says."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "giveway-proxy", "namespace": place.namespace},
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "resourceNames": ["giveway-policy"],
                "verbs": ["list", "watch"],
            }
        ],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": role["metadata"],
        "subjects": [{"kind": "User", "name": "nobody", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {
            "kind": "Role",
            "name": "giveway-proxy",
            "apiGroup": "rbac.authorization.k8s.io",
        },
    }
    place.plane.apply(role, binding)
    token = place.logs / "token"
    token.write_text(USERS["nobody"])
    return token


@asynccontextmanager
async def proxy_of(place: Place, *options: str, token: Path | None = None) -> AsyncIterator[Proxy]:
    """With a `token` it watches."""
    watching = (
        ()
        if token is None
        else (
            *("--watch-config-map", f"{place.namespace}/giveway-policy"),
            *("--kube-api", place.plane.url, "--kube-token-file", str(token)),
            *("--kube-ca-file", str(place.plane.certificate)),
        )
    )
    async with (
        Emulator(logs=place.logs) as engine,
        Proxy(engine.url, *watching, *options, logs=place.logs) as proxy,
    ):
        yield proxy


async def in_force(proxy: Proxy) -> tuple[int, int]:
    """Epoch and generation that the proxy says it runs."""
    samples = await scrape(proxy.admin_url)
    (labels,) = (labels for name, labels, _ in samples.values if name == "giveway_policy_info")
    return int(labels["epoch"]), int(labels["generation"])


async def follows(proxy: Proxy, order: tuple[int, int]) -> None:
    async def runs() -> bool:
        return await in_force(proxy) == order

    await until(runs, what=f"the proxy runs {order}", within_s=60)


async def test_proxy_that_watches_follows_kubectl_apply(place: Place, watcher: Path) -> None:
    async with proxy_of(place, token=watcher) as proxy, place.operator():
        assert await in_force(proxy) == (0, 0), "the built-in policy"
        place.apply_policy()
        first = await place.published()
        await follows(proxy, first.order)
        place.apply_policy(mode="Observe")
        second = await place.published(above=first.order)
        await follows(proxy, second.order)
        place.kubectl("delete", "slopolicy", "chat")
        await until(
            lambda: place.get("configmap", "giveway-policy") is None, what="it is cleaned up"
        )
        assert await in_force(proxy) == second.order, "what is gone takes nothing out of force"
        place.apply_policy()
        third = await place.published(above=second.order)
        await follows(proxy, third.order)


async def test_key_from_a_secret_is_known_to_the_proxy_until_it_is_taken_back(
    place: Place, watcher: Path
) -> None:
    place.apply_keys()
    place.apply_tenant(
        recognizedBy=[{"apiKey": {"secretRef": {"namespace": place.namespace, "name": "keys"}}}]
    )
    place.apply_policy()
    mounted = place.logs / "digests"
    mounted.mkdir()

    def project() -> bool:
        """As kubelet does; whether there is anything."""
        found = place.get("secret", "giveway-key-digests")
        data = {} if found is None else found["data"]
        (mounted / "digests.json").write_bytes(base64.b64decode(data.get("digests.json", "e30=")))
        return bool(data)

    async def tenant(proxy: Proxy) -> str:
        answer = await ask(
            proxy.url, "/v1/chat/completions", BODY, headers={"Authorization": f"Bearer {KEY}"}
        )
        return answer.header("x-giveway-tenant") or ""

    digests = ("--key-digests", str(mounted))
    async with place.operator(), proxy_of(place, *digests, token=watcher) as proxy:
        await follows(proxy, (await place.published()).order)
        await until(project, what="digests are published")

        async def known() -> bool:
            return await tenant(proxy) == place.tenant

        await until(known, what="the key is known")
        place.kubectl("delete", "secret", "keys")
        await until(lambda: not project(), what="digests are gone")

        async def unknown() -> bool:
            return await tenant(proxy) == "anonymous"

        await until(unknown, what="the key is nobody's")


async def test_api_server_that_dies_stops_nobody_and_all_go_on_when_it_is_back(
    control_plane: ControlPlane, place: Place, watcher: Path
) -> None:
    place.apply_policy()
    async with place.operator() as operator, proxy_of(place, token=watcher) as proxy:
        first = await place.published()
        await follows(proxy, first.order)
        control_plane.kill_apiserver()
        try:

            async def says_so() -> bool:
                return (await ready(operator))[0] == 503

            await until(says_so, what="the operator is not ready", within_s=60)
            answer = await ask(operator.admin_url, "/livez")
            assert answer.status == 200, "a restart would mend nothing"
            answer = await ask(proxy.url, "/v1/chat/completions", BODY)
            assert answer.status == 200
            assert await in_force(proxy) == first.order
        finally:
            await asyncio.to_thread(control_plane.start_apiserver)
        await until_ready(operator)
        assert place.document() == first, "nothing changed, so nothing was written"
        place.apply_policy(mode="Observe")
        second = await place.published(above=first.order)
        await follows(proxy, second.order)


async def test_of_mount_and_watch_the_newer_one_counts(place: Place, watcher: Path) -> None:
    place.apply_policy()
    mounted = place.logs / "mounted"
    mounted.mkdir()

    def project() -> None:
        """As kubelet does, some time."""
        text = place.get("configmap", "giveway-policy")["data"]["chat.json"]
        (mounted / "chat.json").write_text(text)

    options = ("--policy-document", str(mounted))
    async with place.operator():
        first = await place.published()
        project()
        async with proxy_of(place, *options, token=watcher) as proxy:
            await follows(proxy, first.order)
            place.apply_policy(mode="Observe")
            second = await place.published(above=first.order)
            await follows(proxy, second.order)
            project()
            assert await in_force(proxy) == second.order
            place.kubectl("delete", "rolebinding", "giveway-proxy")
            place.apply_policy(mode="Enforce")
            third = await place.published(above=second.order)
            project()
            await follows(proxy, third.order)
