"""What is in a JSON body, and in which words does vLLM complain about it?

The emulator has no tokenizer: four bytes of UTF-8 are one token. A token's number is its four bytes
read as an integer, so that tokenizing and detokenizing are each other's inverse.
"""

import json

from giveway_simulation.emulator_http import HttpRequest

BYTES_PER_TOKEN = 4
_TRUE = frozenset({"1", "1.0", "true", "t", "yes", "y", "on"})
_FALSE = frozenset({"0", "0.0", "false", "f", "no", "n", "off"})


class RefusedError(Exception):
    """The engine's 4xx or 5xx. `parameter` None: no field is to blame."""

    def __init__(
        self, status: int, message: str, *, kind: str = "BadRequestError", parameter: str | None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.parameter = parameter


def count_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def tokenize(text: str) -> list[int]:
    data = text.encode("utf-8", "surrogatepass")
    return [
        int.from_bytes(data[at : at + BYTES_PER_TOKEN], "big")
        for at in range(0, len(data), BYTES_PER_TOKEN)
    ]


def detokenize(tokens: list[int]) -> str:
    return b"".join(
        token.to_bytes(max(1, (token.bit_length() + 7) // 8), "big") for token in tokens
    ).decode("utf-8", "replace")


def read_body(request: HttpRequest) -> "Fields":
    """Parse the JSON object of a request."""
    kind = request.headers.get(b"content-type", b"").split(b";", 1)[0].strip().lower()
    if kind != b"application/json":
        raise RefusedError(
            400,
            "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed",
            kind="Bad Request",
            parameter=None,
        )
    if not request.body:
        raise invalid("body", "missing", "Field required", "None")
    try:
        body = json.loads(request.body)
    except json.JSONDecodeError as error:
        raise invalid(
            f"body.{error.pos}",
            "json_invalid",
            "JSON decode error",
            "<dict of 0 items>",
            context=f"{{'error': '{error.msg}'}}",
        ) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise invalid("body.0", "json_invalid", "JSON decode error", "") from error
    if not isinstance(body, dict):
        raise invalid(
            "body",
            "model_attributes_type",
            "Input should be a valid dictionary or object to extract fields from",
            described(body),
        )
    return Fields(body)


class Fields:
    """A JSON object whose fields are read by type; complains as vLLM's models do."""

    def __init__(self, body: dict[str, object]) -> None:
        self.body = body

    def integer(self, name: str) -> int | None:
        value = self.body.get(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, bool):
            return int(value)
        if isinstance(value, float):
            if value.is_integer():
                return int(value)
            raise invalid(
                f"body.{name}",
                "int_from_float",
                "Input should be a valid integer, got a number with a fractional part",
                str(value),
            )
        if isinstance(value, str):
            try:
                return int(value)
            except ValueError:
                raise invalid(
                    f"body.{name}",
                    "int_parsing",
                    "Input should be a valid integer, unable to parse string as an integer",
                    value,
                ) from None
        raise invalid(
            f"body.{name}", "int_type", "Input should be a valid integer", described(value)
        )

    def number(self, name: str) -> float | None:
        value = self.body.get(name)
        if value is None:
            return None
        if isinstance(value, int | float | str):
            try:
                return float(value)
            except ValueError:
                pass
        raise invalid(
            f"body.{name}",
            "float_parsing" if isinstance(value, str) else "float_type",
            "Input should be a valid number",
            described(value),
        )

    def flag(self, name: str) -> bool:
        value = self.body.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        word = str(value).lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise invalid(
            f"body.{name}", "bool_parsing", "Input should be a valid boolean", described(value)
        )

    def items(self, name: str) -> list[object]:
        value = self.required(name)
        if isinstance(value, list):
            return value
        raise invalid(f"body.{name}", "list_type", "Input should be a valid list", described(value))

    def required(self, name: str) -> object:
        if name not in self.body:
            raise invalid(
                f"body.{name}", "missing", "Field required", f"<dict of {len(self.body)} items>"
            )
        return self.body[name]


def invalid(
    where: str, kind: str, words: str, given: str, *, context: str | None = None
) -> RefusedError:
    """A field that has the wrong type, in the words of vLLM's validation. `context` None: none."""
    more = "" if context is None else f", 'ctx': {context}"
    detail = f"{{'type': '{kind}', 'loc': '{where}', 'msg': '{words}', 'input': '{given}'{more}}}"
    return RefusedError(
        400, f"1 validation error:\n  {detail}", kind="Bad Request", parameter=where
    )


def described(value: object) -> str:
    if isinstance(value, list | dict):
        kind = "list" if isinstance(value, list) else "dict"
        return f"<{kind} of {len(value)} items>"
    return str(value)
