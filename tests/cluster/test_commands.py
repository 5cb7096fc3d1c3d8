"""What do `giveway status` and `giveway render --diff` say of a real cluster?"""

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from giveway_command.main import main

from tests.cluster.places import Place
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]


async def test_commands_agree_with_what_the_operator_published(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rendered from the files there is no difference; of an edited file it is the edit."""
    kubeconfig = ("--kubeconfig", str(place.plane.kubeconfig), "--namespace", place.namespace)
    place.apply_policy()
    place.apply_tenant()
    async with place.operator():
        document = await place.published()
        await until(lambda: (place.condition() or {}).get("status") == "True", what="it is ready")
    tenants = {each.name for each in document.tenants}
    written = [
        {key: each[key] for key in ("apiVersion", "kind", "metadata", "spec")}
        for each in (
            place.plane.get("slop", "chat", "-n", place.namespace),
            *place.plane.get("tprio")["items"],
        )
        if each["kind"] == "SLOPolicy" or each["spec"]["tenant"] in tenants
    ]
    file = tmp_path / "files.yaml"
    file.write_text(yaml.safe_dump_all(written))
    render = ["render", "--diff", *kubeconfig, str(file)]
    assert await asyncio.to_thread(main, render) == 0, capsys.readouterr().out
    written[0]["spec"]["mode"] = "Observe"
    file.write_text(yaml.safe_dump_all(written))
    assert await asyncio.to_thread(main, render) == 1
    told = capsys.readouterr().out
    assert '-    "mode": "Enforce"' in told
    assert '+    "mode": "Observe"' in told

    assert await asyncio.to_thread(main, ["status", *kubeconfig]) == 0
    told = capsys.readouterr().out
    assert f"{place.namespace}/chat: published {document.epoch}/{document.generation}" in told
    assert await asyncio.to_thread(main, ["status", *kubeconfig, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["metadata"]["name"] == "chat"
    assert await asyncio.to_thread(main, ["status", "none", *kubeconfig]) == 1
    assert "there is no SLOPolicy none" in capsys.readouterr().err
