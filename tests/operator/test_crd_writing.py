"""Are the CustomResourceDefinitions in `crds/` those of the models?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from giveway_operator.cel_rules import POLICY, TENANT
from giveway_operator.crd_writing import as_text, definitions

CRDS = Path(__file__).parents[2] / "crds"


def schemas(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each schema of a tree with its path."""
    yield path, node
    for name, each in node.get("properties", {}).items():
        yield from schemas(each, f"{path}.{name}")
    if "items" in node:
        yield from schemas(node["items"], f"{path}[]")
    if "additionalProperties" in node:
        yield from schemas(node["additionalProperties"], f"{path}.*")


def everything() -> list[tuple[str, dict[str, Any]]]:
    """All schemas below spec and status of both resources."""
    found: list[tuple[str, dict[str, Any]]] = []
    for definition in definitions().values():
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        kind = definition["spec"]["names"]["kind"]
        for part in ("spec", "status"):
            found += schemas(schema["properties"][part], f"{kind}.{part}")
    return found


def test_files_are_what_the_models_say() -> None:
    """`make crds` has nothing to change, and there is no file beside."""
    made = {name: as_text(each) for name, each in definitions().items()}
    assert {file.name: file.read_text("utf-8") for file in CRDS.iterdir()} == made


def test_every_field_is_described() -> None:
    """`kubectl explain` has a text for each."""
    fields = [(path, each) for path, each in everything() if not path.endswith(("[]", ".*"))]
    assert len(fields) > 150
    assert [path for path, each in fields if not each.get("description")] == []


def test_everything_is_bounded() -> None:
    """No text, list or map can be larger than its reader expects."""
    unbounded = []
    for path, each in everything():
        match each.get("type"):
            case "string":
                is_bounded = "maxLength" in each or "enum" in each
                bounded_by_pattern = each.get("pattern", "").endswith("{64}$")
                if not (is_bounded or bounded_by_pattern):
                    unbounded.append(path)
            case "array":
                if "maxItems" not in each:
                    unbounded.append(path)
            case "object":
                if "additionalProperties" in each and "maxProperties" not in each:
                    unbounded.append(path)
            case "integer":
                if not {"minimum", "maximum"} <= each.keys():
                    unbounded.append(path)
            case _:
                pass
    assert unbounded == []


@pytest.mark.parametrize(("kind", "rules"), [("SLOPolicy", POLICY), ("TenantPriority", TENANT)])
def test_every_rule_is_about_a_field_that_there_is(kind: str, rules: dict[str, Any]) -> None:
    """A mistyped path would drop the rule without a word."""
    paths = {path for path, _ in everything()}
    assert {f"{kind}.{path}" for path in rules} <= paths
    schema_rules = sum(len(each.get("x-kubernetes-validations", ())) for _, each in everything())
    assert schema_rules == sum(map(len, [*POLICY.values(), *TENANT.values()]))


def test_definitions_are_plain_yaml() -> None:
    """The files load to what was written."""
    for name, definition in definitions().items():
        assert yaml.safe_load((CRDS / name).read_text("utf-8")) == definition
