"""Pydantic validators that stop at the first fault of a list, so that no peer decides how many are described."""

from collections.abc import Mapping
from typing import Any

import pydantic_core
from pydantic_core import core_schema

_FAIL_FAST_TYPES = frozenset(
    {"list", "tuple", "set", "frozenset", "dict", "deque", "counter", "frozendict", "ordered-dict"}
)
"""The types in pydantic's core schemas that can stop at their first invalid item."""
_FIELD_TYPES = frozenset({"model-fields", "typed-dict", "dataclass-args"})
_SCHEMA_LISTS = frozenset({"choices", "steps", "fields", "definitions"})
_MAX_UNKNOWN_FIELDS = 5
"""The unknown fields that each alternative of a union describes."""


def fail_fast_validator(schema: Any) -> pydantic_core.SchemaValidator:
    """Returns a validator of a core schema that stops at the first invalid item of each list and dict.

    Pydantic's own collects every problem, some 400 bytes each, for each missing field of each item.
    """
    # With the models' own validators inside, only lists outside of models would stop.
    return pydantic_core.SchemaValidator(_fail_fast(schema, {}, False), _use_prebuilt=False)


def _fail_fast(node: Any, config: Mapping[str, Any], in_union: bool) -> Any:
    """Returns a copy of a part of a core schema. `config` is that of the model around it."""
    if isinstance(node, list | tuple):
        return type(node)(_fail_fast(child, config, in_union) for child in node)
    if not isinstance(node, dict):
        return node
    kind = node.get("type")
    config = node.get("config") or config
    in_union = in_union or kind == "union"
    copied: dict[str, Any] = {}
    for key, value in node.items():
        if key in _SCHEMA_LISTS and isinstance(value, dict):
            copied[key] = {name: _fail_fast(child, config, in_union) for name, child in value.items()}
        elif key in _SCHEMA_LISTS or key == "schema" or key.endswith("_schema"):
            copied[key] = _fail_fast(value, config, in_union)
        else:
            copied[key] = value
    if kind in _FAIL_FAST_TYPES:
        copied["fail_fast"] = True
    is_strict = (node.get("extra_behavior") or config.get("extra_fields_behavior")) == "forbid"
    if in_union and is_strict and kind in _FIELD_TYPES:
        return _refuse_many_fields(copied)
    return copied


def _refuse_many_fields(schema: dict[str, Any]) -> Any:
    """Adds a check that an object has hardly more fields than there are: every alternative would describe each."""
    most = 2 * len(schema["fields"]) + _MAX_UNKNOWN_FIELDS

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > most:
            raise pydantic_core.PydanticCustomError("too_many_fields", "Input has many fields that do not exist")
        return value

    return core_schema.no_info_before_validator_function(check, schema)
