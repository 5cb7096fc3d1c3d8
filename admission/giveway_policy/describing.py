"""What can stand in a policy, for people? Prints `docs/policy.md`:

    python -m giveway_policy.describing > docs/policy.md

Everything but the introduction comes from the models, so that it says what the reader of policies
does. A test keeps the file up to date.
"""

import sys
from collections.abc import Iterator
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import StringConstraints, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from giveway_policy.fields import EXPLANATIONS, Model
from giveway_policy.resources import Jwt, SLOPolicySpec
from giveway_policy.tenants import JwtClaim, TenantPrioritySpec

_LEFT_OUT = (Jwt, JwtClaim)
"""Known to the models and refused by the checks: not there yet."""

_INTRODUCTION = """\
# Policies

A policy is one SLOPolicy and any number of TenantPriority resources, as YAML or JSON, in one file
(`---` between resources) or in the files of one folder. This is the smallest one:

```yaml
apiVersion: giveway.dev/v1alpha1
kind: SLOPolicy
metadata: {name: smallest}
spec:
  classes:
  - {name: chat, kind: Interactive}
  - {name: batch, kind: Batch}
```

Here everybody is the tenant `anonymous` and gets `batch`, the lowest class, since nothing says
who may have more. Either name tenants, or let clients choose:

```yaml
  identity:
    trustedHeaders: [X-Giveway-Class]
    fallbackClass: chat
```

- **Check**: `giveway lint policy.yaml` names file, line, path and fix of each fault. Unknown
  fields are faults, so a slip of the pen never means "no limit".
- **Try without risk**: with `mode: Observe` every request goes at once, and the scheduler decides
  about its shadow: the queues, buckets and last decisions on the admin page are what they would be.
- **Change**: a saved file takes effect within two seconds. A resource with faults does not; its
  last good version stays, and the log, `/readyz` and the admin page name the fault.
- **Measure**: `giveway calibrate` prints `concurrency` and `scheduling` for your engine.

What is for Kubernetes is checked and does nothing yet: `selector`, `adjustment`,
`deadbandPercent`; a `secretRef` recognizes nobody.

[`examples`](../examples) has whole policies with comments. This page is made from the models that
read a policy: `python -m giveway_policy.describing > docs/policy.md`.
"""

_RESOURCES: dict[str, tuple[type[Model], str]] = {
    "SLOPolicy": (
        SLOPolicySpec,
        "Classes, limits, order and objectives. `metadata`: `name` (required), `namespace`.",
    ),
    "TenantPriority": (
        TenantPrioritySpec,
        """\
One for each tenant. `metadata`: `name` (required). It belongs to every policy that is read with it
and has its classes.""",
    ),
}
"""Each kind's model, and what stands before its tables."""


def describe() -> str:
    """All of `docs/policy.md`."""
    parts = [_INTRODUCTION]
    for kind, (model, what) in _RESOURCES.items():
        parts.append(f"## {kind}\n\n{what}\n")
        parts.extend(_sections(model, "spec", kind=kind))
    return "\n".join(parts)


def _sections(model: type[Model], path: str, *, kind: str) -> Iterator[str]:
    """A table for `model`, then one for each model inside it."""
    rows = ["| field | value | default | meaning |", "|---|---|---|---|"]
    inner: list[tuple[type[Model], str]] = []
    for name, field in model.model_fields.items():
        shown = field.alias or name
        part, is_list = _model_in(field.annotation)
        if part in _LEFT_OUT:
            continue
        where = f"{path}.{shown}{'[]' if is_list else ''}"
        if part is None:
            value = _text(_value(field))
        else:
            inner.append((part, where))
            value = f"{'list, ' if is_list else ''}[below](#{_anchor(f'{kind} {where}')})"
        cells = [f"`{shown}`", value, _text(_default(field)), _text(field.description or "")]
        rows.append(f"| {' | '.join(cells)} |")
    yield "\n".join([f"### {kind} `{path}`\n", *rows, ""])
    for part, where in inner:
        yield from _sections(part, where, kind=kind)


def _model_in(annotation: object) -> tuple[type[Model] | None, bool]:
    """The model that a field holds, and whether it holds a list."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation, False
    for each in get_args(annotation):
        found, _ = _model_in(each)
        if found is not None:
            return found, get_origin(annotation) is tuple
    return None, False


def _value(field: FieldInfo) -> str:
    annotation, metadata = _plain(field.annotation)
    constraints = [*metadata, *field.metadata]
    if get_origin(annotation) is tuple:
        return f"list: {_of_type(*_plain(get_args(annotation)[0]))}"
    if get_origin(annotation) is dict:
        return "mapping of texts"
    return _of_type(annotation, constraints)


def _plain(annotation: object) -> tuple[object, list[Any]]:
    """Without `None` and `Annotated`, and the constraints that stood in it."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        return inner, metadata
    if get_origin(annotation) in (Union, UnionType):
        (only,) = [each for each in get_args(annotation) if each is not NoneType]
        return _plain(only)
    return annotation, []


def _of_type(annotation: object, constraints: list[Any]) -> str:
    if any(isinstance(each, WithJsonSchema) for each in constraints):
        return "bytes, or with `Ki`, `Mi`, `Gi`"
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return ", ".join(f"`{each.value}`" for each in annotation)
    if annotation is bool:
        return "`true`, `false`"
    if annotation is int:
        low = next((each.ge for each in constraints if isinstance(each, Ge)), None)
        high = next((each.le for each in constraints if isinstance(each, Le)), None)
        return f"{low:,} to {high:,}"
    patterns = [_pattern(each) for each in constraints]
    return next((EXPLANATIONS[each] for each in patterns if each in EXPLANATIONS), "text")


def _is_size(field: FieldInfo) -> bool:
    return any(isinstance(each, WithJsonSchema) for each in field.metadata)


def _pattern(constraint: object) -> str:
    """Constraints of strings carry it under one name, pydantic's own for fields too."""
    if isinstance(constraint, StringConstraints):
        return str(constraint.pattern)
    return str(getattr(constraint, "pattern", None))


def _default(field: FieldInfo) -> str:
    """Empty where the meaning tells it, or where it is that of the fields inside."""
    if field.is_required():
        return "required"
    if field.default is PydanticUndefined or field.default is None or field.default == ():
        return ""
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    if isinstance(field.default, int):
        return f"{field.default // 2**20}Mi" if _is_size(field) else f"{field.default:,}"
    quote = "" if isinstance(field.default, StrEnum) or field.default.isalpha() else '"'
    return f"`{quote}{field.default}{quote}`"


def _text(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _anchor(heading: str) -> str:
    """As GitHub makes it from the heading."""
    return "".join(
        each for each in heading.lower().replace(" ", "-") if each.isalnum() or each in "-_"
    )


if __name__ == "__main__":
    sys.stdout.write(describe())
