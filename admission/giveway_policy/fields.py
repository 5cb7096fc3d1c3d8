"""What can a field of a resource hold?

Every string, list and number is bounded, so that no resource can be larger than its reader expects.
Numbers are whole, with the unit in the field's name. Fractions and percentages are decimal strings,
since a number with a point is read differently by different tools.
"""

from decimal import Decimal
from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

EXPLANATIONS: dict[str, str] = {}
"""What each pattern means, in words."""


def _pattern(pattern: str, meaning: str) -> str:
    EXPLANATIONS[pattern] = meaning
    return pattern


_SIZE_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_SIZE_PATTERN = r"^[1-9][0-9]{0,12}(Ki|Mi|Gi)?$"


class Model(BaseModel):
    """A part of a resource: camelCase outside, snake_case inside, unknown fields refused."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,
    )


def _to_bytes(value: object) -> object:
    """`512Mi` as a number; anything else is left for the field's own check to refuse."""
    if not isinstance(value, str):
        return value
    unit = _SIZE_UNITS.get(value[-2:], 1)
    digits = value[:-2] if unit > 1 else value
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 13):
        raise ValueError("must be a number of bytes, with Ki, Mi or Gi after it if wanted")
    return int(digits) * unit


CLASS_PATTERN = _pattern(
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "lower-case letters, digits and dashes inside"
)

ClassName = Annotated[str, StringConstraints(pattern=CLASS_PATTERN, min_length=1, max_length=63)]
"""The name of a service class: a DNS label, since it becomes a metrics label and a header value."""

ResourceName = Annotated[
    str,
    StringConstraints(
        pattern=_pattern(
            r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
            "lower-case letters, digits, and dashes and dots inside",
        ),
        min_length=1,
        max_length=253,
    ),
]

TENANT_PATTERN = _pattern(
    r"^[A-Za-z0-9]([-A-Za-z0-9_.:@]*[A-Za-z0-9])?$", "letters, digits, and - _ . : @ inside"
)
LONGEST_TENANT = 128

TenantName = Annotated[
    str, StringConstraints(pattern=TENANT_PATTERN, min_length=1, max_length=LONGEST_TENANT)
]

SourceName = Annotated[
    str,
    StringConstraints(
        pattern=_pattern(
            r"^[A-Za-z0-9][-A-Za-z0-9_./:]*$", "letters, digits, and - _ . / : after the first"
        ),
        min_length=1,
        max_length=128,
    ),
]

HeaderName = Annotated[
    str,
    StringConstraints(
        pattern=_pattern(r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", "a header's name, without a colon"),
        min_length=1,
        max_length=128,
    ),
]

HeaderValue = Annotated[
    str,
    StringConstraints(
        pattern=_pattern(r"^[!-~]([ -~]*[!-~])?$", "printable ASCII without a space at either end"),
        min_length=1,
        max_length=1024,
    ),
]

Text = Annotated[str, StringConstraints(min_length=1, max_length=1024)]

LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=317)]
LabelValue = Annotated[str, StringConstraints(max_length=63)]

Percent = Annotated[
    str,
    StringConstraints(
        pattern=_pattern(
            r"^(100(\.0{1,4})?|[0-9]{1,2}(\.[0-9]{1,4})?)$",
            'a percentage from 0 to 100 in quotes, like "99.5"',
        ),
        max_length=8,
    ),
]
"""0 to 100 as a decimal string: "99", "99.9"."""

DecimalText = Annotated[
    str,
    StringConstraints(
        pattern=_pattern(r"^[0-9]{1,7}(\.[0-9]{1,6})?$", 'a number in quotes, like "0.05"'),
        max_length=14,
    ),
]
"""A number that is not negative, as a decimal string: "5", "0.05"."""

Ratio = Annotated[
    str,
    StringConstraints(
        pattern=_pattern(
            r"^(1(\.0{1,6})?|0(\.[0-9]{1,6})?)$", 'a number from 0 to 1 in quotes, like "0.3"'
        ),
        max_length=8,
    ),
]
"""0 to 1 as a decimal string."""

ByteSize = Annotated[
    int,
    BeforeValidator(_to_bytes),
    Field(ge=1, le=2**40),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": _SIZE_PATTERN,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
"""A number of bytes. Written as a number or with Ki, Mi or Gi: 512Mi; always a number inside."""


def percent_to_ratio(text: str) -> float:
    """A `Percent` as 0.0 to 1.0; rounded once, so "99.9" is the float nearest to 0.999."""
    return float(Decimal(text) / 100)
