"""Is a resource of the right form, and if not, what would its author have to write?

Translates what the models say into a reason and a fix. Values are shown only where they cannot be
a credential.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from giveway_policy.faults import FaultKind, Path, Problem, shown
from giveway_policy.fields import EXPLANATIONS
from giveway_policy.resources import SLOPolicy
from giveway_policy.tenants import TenantPriority

Resource = TypeVar("Resource", SLOPolicy, TenantPriority)

MOST_PROBLEMS = 50
"""Of one resource. After these its author has enough to do."""

_SECRET_PARTS = frozenset({"recognizedBy", "jwt", "annotations", "labels", "status"})
_SHOWN_AS = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is far too large",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "missing": "is required",
    "extra_forbidden": "is not a field here",
}
_WITHOUT_VALUE = frozenset({"missing", "extra_forbidden", "too_short", "too_long"})
"""Where showing the value would say nothing."""


def validate(model: type[Resource], value: Mapping[str, object]) -> Resource | list[Problem]:
    """The resource, complete with its defaults, or everything that is wrong with its form.

    As for Kubernetes, null means absent, and only the camelCase names count.
    """
    try:
        text = json.dumps(_without_nulls(value))
    except (ValueError, TypeError, RecursionError):
        return [_whole("holds what JSON cannot", "write plain text, numbers and lists")]
    try:
        return model.model_validate_json(text, by_alias=True, by_name=False)
    except ValidationError as error:
        details = error.errors(include_url=False)
    inner = {tuple(each["loc"]) for each in details}
    problems = [
        _problem(model, each)
        for each in details
        if not _is_consequence(each["type"], tuple(each["loc"]), inner)
    ]
    return problems[:MOST_PROBLEMS]


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _is_consequence(kind: str, path: Path, others: set[Path]) -> bool:
    """Whether it only follows from another problem: a default, or a list, of what is wrong."""
    if kind == "default_factory_not_called":
        return True
    length = len(path)
    return kind == "too_short" and any(
        len(other) > length and other[:length] == path for other in others
    )


def _problem(model: type[BaseModel], details: ErrorDetails) -> Problem:
    path: Path = tuple(details["loc"])
    if path and path[-1] == "[key]":
        path = path[:-1]
    kind, context = details["type"], details.get("ctx", {})
    reason = (
        _SHOWN_AS.get(kind)
        or _bound(kind, context)
        or details["msg"][:1].lower() + (details["msg"][1:200])
    )
    value = details["input"]
    if kind not in _WITHOUT_VALUE and not _SECRET_PARTS.intersection(path):
        reason += _as_shown(value)
    fix = _fix(model, path, kind=kind, context=context, value=value)
    return Problem(path=path, reason=reason, fix=fix, kind=FaultKind.SCHEMA)


def _bound(kind: str, context: Mapping[str, Any]) -> str | None:
    match kind:
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case "too_short":
            return f"must have at least {context['min_length']} entry"
        case "too_long":
            return f"must have at most {context['max_length']} entries"
        case "string_too_short":
            return "must not be empty"
        case "string_too_long":
            return f"must be at most {context['max_length']} characters"
        case "enum" | "literal_error":
            return f"must be {context['expected']}"
        case "string_pattern_mismatch":
            return f"must be {EXPLANATIONS.get(context['pattern'], 'of another form')}"
        case "value_error":
            return str(context.get("error", ""))[:200]
        case _:
            return None


def _as_shown(value: object) -> str:
    match value:
        case str():
            return f", not the text '{shown(value)}'" if len(value) <= 80 else ", not such a text"
        case bool():
            return f", not {str(value).lower()}"
        case int() | float():
            return f", not {str(value)[:30]}"
        case list():
            return ", not a list"
        case dict():
            return ", not a mapping"
        case _:
            return ""


def _fix(
    model: type[BaseModel], path: Path, *, kind: str, context: Mapping[str, Any], value: object
) -> str:
    fields = _fields_at(model, path[:-1])
    name = str(path[-1]) if path else ""
    match kind:
        case "extra_forbidden":
            return _instead_of(name, sorted(fields))
        case "missing":
            return f"add {name}: {_first_sentence(fields.get(name, ''))}"
        case "enum" | "literal_error":
            words = [
                each.strip("' ") for each in context["expected"].replace(" or ", ",").split(",")
            ]
            close = difflib.get_close_matches(str(value), words, n=1, cutoff=0.5)
            return f"did you mean {close[0]}?" if close else "write one of these"
        case "int_type" | "bool_type" if isinstance(value, str):
            is_number = value.strip("-").isdecimal()
            return f"write it without {'quotes' if is_number else 'a unit'}"
        case "int_from_float" | "int_type":
            return "write it without a point; the field's name tells the unit"
        case "model_type" | "model_attributes_type":
            return _instead_of("", sorted(_fields_at(model, path)))
        case "string_type" if isinstance(value, bool | int | float):
            return "put it in quotes"
        case _:
            return _first_sentence(fields.get(name, "")) or "see the documentation of the field"


def _instead_of(name: str, fields: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, fields, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    return f"fields here: {', '.join(fields)}" if fields else "remove it"


def _first_sentence(description: str) -> str:
    return description.split(". ")[0].rstrip(".")


def _fields_at(model: type[BaseModel], path: Path) -> dict[str, str]:
    """Name and description of each field of the model at this path. Empty: it is no model."""
    here: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, int):
            continue
        here = _model_of(here, part) if here is not None else None
    if here is None:
        return {}
    return {
        field.alias or name: field.description or "" for name, field in here.model_fields.items()
    }


def _model_of(model: type[BaseModel], alias: str) -> type[BaseModel] | None:
    for name, field in model.model_fields.items():
        if (field.alias or name) == alias:
            return _first_model(field.annotation)
    return None


def _first_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        found = _first_model(part)
        if found is not None:
            return found
    return None


def _whole(reason: str, fix: str) -> Problem:
    return Problem(path=(), reason=reason, fix=fix, kind=FaultKind.SCHEMA)
