"""In how many ways can the same JSON object be written?

Strategies for bodies as clients and attackers write them: any white space, escaped keys, the same
key several times, nested values that look like members of the top level.
"""

import json

from hypothesis import strategies as st

_SPACES = st.sampled_from(["", "", "", " ", "\n", "\t ", "\r\n"])

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(
        ['{"stream_options":', '","priority":5,"', "\\", '"', "\\u0070riority", "[]", "}"]
    ),
)

_names = st.one_of(
    st.sampled_from(["priority", "stream_options", "include_usage", "model", "messages", "n"]),
    st.text(max_size=8),
)

values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(_names, inner, max_size=4)
    ),
    max_leaves=12,
)

stream_options = st.one_of(
    st.none(),
    st.dictionaries(st.sampled_from(["include_usage", "continuous_usage_stats", "x"]), scalars),
)


@st.composite
def keys(draw: st.DrawFn, name: str) -> str:
    """A key, now and then with a letter escaped."""
    if name and name.isascii() and name.isalnum() and draw(st.integers(0, 4)) == 0:
        return f'"\\u{ord(name[0]):04x}{name[1:]}"'
    return json.dumps(name, ensure_ascii=draw(st.booleans()))


@st.composite
def members(draw: st.DrawFn) -> list[tuple[str, str]]:
    """(key text, value text) of an object's members, with repetitions."""
    names = draw(st.lists(_names, max_size=7))
    found = []
    for name in names:
        value = draw(stream_options if name == "stream_options" else values)
        text = json.dumps(
            value,
            ensure_ascii=draw(st.booleans()),
            separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")])),
        )
        found.append((draw(keys(name)), text))
    return found


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """The text of a JSON object, in UTF-8."""
    parts = [
        draw(_SPACES) + key + draw(_SPACES) + ":" + draw(_SPACES) + value + draw(_SPACES)
        for key, value in draw(members())
    ]
    inside = ",".join(parts) if parts else draw(_SPACES)
    text = draw(_SPACES) + "{" + inside + "}" + draw(_SPACES)
    return text.encode("utf-8", "surrogatepass")
