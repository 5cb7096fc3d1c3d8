"""Is what `giveway render` tells what the operator would publish?"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from giveway_command.main import main
from giveway_policy.documents import parse_document

POLICY = {
    "apiVersion": "giveway.dev/v1alpha1",
    "kind": "SLOPolicy",
    "metadata": {"name": "chat"},
    "spec": {"classes": [{"name": "realtime", "kind": "Interactive"}]},
}


def tenant(name: str, **way: Any) -> dict[str, Any]:
    return {
        "apiVersion": "giveway.dev/v1alpha1",
        "kind": "TenantPriority",
        "metadata": {"name": name},
        "spec": {"tenant": name, "maximumClass": "realtime", "recognizedBy": [{"apiKey": way}]},
    }


def secret(name: str) -> dict[str, Any]:
    return {"secretRef": {"namespace": "llm", "name": name}}


def written(folder: Path, *documents: dict[str, Any]) -> str:
    file = folder / "policy.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return str(file)


def test_rendered_document_is_one_that_proxies_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its hash, its tenants, the namespace that was asked for, and no digest."""
    file = written(tmp_path, POLICY, tenant("acme", **secret("keys")))
    assert main(["render", "--namespace", "llm", file]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert found["metadata"] == {"name": "giveway-policy", "namespace": "llm"}
    document = parse_document(found["data"]["chat.json"].encode())
    assert str(document.policy) == "llm/chat"
    assert [(each.name, each.key_digests) for each in document.tenants] == [("acme", ())]


def test_same_files_render_to_the_same_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a pipeline would see changes that are none."""
    file = written(tmp_path, POLICY)
    texts = []
    for _ in range(2):
        assert main(["render", file]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("tenants", "said"),
    [
        ([tenant("acme", keyFile="keys.txt")], "put the keys into a Secret"),
        ([tenant("a", **secret("one")), tenant("b", **secret("one"))], "one of its API keys"),
    ],
    ids=["a key file", "a Secret of two tenants"],
)
def test_what_only_a_cluster_refuses_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tenants: list[dict[str, Any]], said: str
) -> None:
    """The operator would leave it out, so the answer is no; the rest is rendered all the same."""
    assert main(["render", written(tmp_path, POLICY, *tenants)]) == 1
    told = capsys.readouterr()
    assert said in told.err
    assert "chat.json" in told.out


def test_missing_file_is_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and which one."""
    assert main(["render", str(tmp_path / "gone.yaml")]) == 2
    assert "gone.yaml" in capsys.readouterr().err


def test_unreachable_cluster_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A kubeconfig that is not there is no traceback."""
    file = written(tmp_path, POLICY)
    assert main(["render", "--diff", "--kubeconfig", str(tmp_path / "none"), file]) == 1
    assert "--kubeconfig" in capsys.readouterr().err
