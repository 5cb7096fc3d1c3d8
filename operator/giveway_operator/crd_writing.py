"""Which CustomResourceDefinitions follow from the models?

`python -m giveway_operator.crd_writing FOLDER` writes one file for each resource. The schema is
that of the pydantic models (`giveway_policy.resources`, `giveway_policy.tenants`, `statuses`), made
structural: references resolved, what may be null merely optional, what the API server does itself
left to it. So a file that `giveway lint` accepts is one that the server accepts.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from giveway_policy.resources import SLOPolicy
from giveway_policy.tenants import TenantPriority
from pydantic import BaseModel

from giveway_operator.cel_rules import POLICY, TENANT, Rule
from giveway_operator.statuses import SLOPolicyStatus, TenantPriorityStatus

GROUP = "giveway.dev"
VERSION = "v1alpha1"

_KEPT = (
    "description",
    "default",
    "enum",
    "maximum",
    "minimum",
    "maxItems",
    "minItems",
    "maxLength",
    "minLength",
    "maxProperties",
    "pattern",
)
"""Words of JSON Schema that a structural schema knows too and the models use."""

_LIST_KEYS = {
    "spec.classes": ["name"],
    "status.conditions": ["type"],
    "status.classes": ["name"],
}
"""Lists whose items have an identity: several managers may own parts, and no key stands twice."""

_POLICY_COLUMNS = (
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("SLO met", "string", '.status.conditions[?(@.type=="SLOMet")].status', 0),
    ("Pods", "integer", ".status.pods.ready", 0),
    ("Current", "integer", ".status.pods.acknowledged", 0),
    ("Mode", "string", ".spec.mode", 0),
    ("Algorithm", "string", ".spec.scheduling.algorithm", 1),
    ("Generation", "integer", ".status.published.generation", 1),
    ("Decided", "string", ".status.lastDecision.reason", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)
_TENANT_COLUMNS = (
    ("Tenant", "string", ".spec.tenant", 0),
    ("Class", "string", ".spec.maximumClass", 0),
    ("Weight", "integer", ".spec.weight", 0),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Requests/s", "integer", ".spec.limits.requestsPerSecond", 1),
    ("Tokens/min", "integer", ".spec.limits.tokensPerMinute", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)

Schema = dict[str, Any]


def definitions() -> dict[str, Schema]:
    """Each CustomResourceDefinition by the name of its file."""
    policies = _definition(
        SLOPolicy,
        SLOPolicyStatus,
        plural="slopolicies",
        short="slop",
        scope="Namespaced",
        rules=POLICY,
        columns=_POLICY_COLUMNS,
    )
    tenants = _definition(
        TenantPriority,
        TenantPriorityStatus,
        plural="tenantpriorities",
        short="tprio",
        scope="Cluster",
        rules=TENANT,
        columns=_TENANT_COLUMNS,
    )
    return {f"{each['spec']['names']['plural']}.yaml": each for each in (policies, tenants)}


def _definition(
    model: type[BaseModel],
    status: type[BaseModel],
    *,
    plural: str,
    short: str,
    scope: str,
    rules: Mapping[str, tuple[Rule, ...]],
    columns: tuple[tuple[str, str, str, int], ...],
) -> Schema:
    kind = model.__name__
    whole = _Structural(model.model_json_schema(by_alias=True), rules)
    spec = whole.schema(whole.document["properties"]["spec"], "spec")
    reported = status.model_json_schema(by_alias=True)
    schema = {
        "description": (model.__doc__ or "").strip(),
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": {
                **_Structural(reported, {}).schema(reported, "status"),
                "description": "What the operator reports.",
            },
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["giveway"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": of_type, "jsonPath": path, "priority": priority}
                        for name, of_type, path, priority in columns
                    ],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


class _Structural:
    """Turns one model's JSON Schema into a structural one."""

    def __init__(self, document: Schema, rules: Mapping[str, tuple[Rule, ...]]) -> None:
        self.document = document
        self._rules = rules

    def schema(self, given: Schema, path: str) -> Schema:
        """The schema at a path like `spec.classes[].name`."""
        given = self._resolved(given)
        found: Schema = {key: given[key] for key in _KEPT if given.get(key) is not None}
        if "const" in given:
            found["enum"] = [given["const"]]
        if given.get("x-kubernetes-int-or-string"):
            found["anyOf"] = [{"type": "integer"}, {"type": "string"}]
            found["x-kubernetes-int-or-string"] = True
        else:
            found["type"] = given["type"]
        if found.get("type") == "integer":
            found["format"] = "int64"
        if "properties" in given:
            found["properties"] = {
                name: self.schema(each, f"{path}.{name}")
                for name, each in given["properties"].items()
            }
        elif isinstance(given.get("additionalProperties"), dict):
            inner = self.schema(given["additionalProperties"], f"{path}.*")
            found["additionalProperties"] = inner
        if "required" in given:
            found["required"] = given["required"]
        if "items" in given:
            found["items"] = self.schema(given["items"], f"{path}[]")
            keys = _LIST_KEYS.get(path)
            found["x-kubernetes-list-type"] = "map" if keys else "atomic"
            if keys:
                found["x-kubernetes-list-map-keys"] = keys
        if path in self._rules:
            found["x-kubernetes-validations"] = [
                {"rule": each.rule, "message": each.message} for each in self._rules[path]
            ]
        return found

    def _resolved(self, given: Schema) -> Schema:
        """The same without a reference, and without null: an absent field is how that is said."""
        if "$ref" in given:
            name = given["$ref"].rsplit("/", 1)[-1]
            return {**self._resolved(self.document["$defs"][name]), **given}
        choices = [each for each in given.get("anyOf", ()) if each.get("type") != "null"]
        if len(choices) == 1:
            return {**self._resolved(choices[0]), **given}
        return given


def as_text(definition: Schema) -> str:
    """A definition as it stands in its file."""
    text = yaml.safe_dump(definition, sort_keys=False, width=100, allow_unicode=True)
    return f"# Made by `make crds` from the models. Do not edit.\n{text}"


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for name, definition in definitions().items():
        (folder / name).write_text(as_text(definition), "utf-8")


if __name__ == "__main__":
    main()
