"""Values that several property tests draw from."""

from typing import Any

from hypothesis import strategies as st

any_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)

_KEYWORDS = [
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "$defs",
    "description",
    "default",
    "additionalProperties",
    "examples",
    "minimum",
    "pattern",
    "format",
    "title",
]
_REFERENCES = st.sampled_from(["#", "#/$defs/a", "#/properties/a", "#/nowhere", "https://example.com/x", "a"])

any_schema: st.SearchStrategy[Any] = st.recursive(
    any_json | _REFERENCES | st.sampled_from(["string", "integer", "object", "array", "null"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*_KEYWORDS, "a", "b"]), inner | _REFERENCES, max_size=6)
    ),
    max_leaves=25,
)
"""What looks like a JSON Schema, and mostly is none."""
