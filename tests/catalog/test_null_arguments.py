"""Null for an argument that is left out: the laws by which arguments of functions and of JSON Schemas are bound."""

from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from deltamcp import Context
from deltamcp.catalog.arguments import InvalidArgumentsError
from deltamcp.catalog.items.function_operation import FunctionOperation
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.json_schema import ForeignSchema
from deltamcp.client.lists import Definition
from tests.support.properties import examples


def function(
    key: int,
    count: int = 3,
    text: str = "",
    names: list[str] = [],  # noqa: B006 - a default of a schema
    maybe: int | None = 7,
    anything: Any = "any",
    short: Annotated[int, Field(alias="s")] = 4,
    unset: int = None,  # type: ignore[assignment]  # noqa: RUF013 - as authors write it
) -> None: ...


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "key": {"type": "integer"},
        "count": {"type": "integer"},
        "text": {"type": "string", "minLength": 1},
        "names": {"type": "array", "items": {"type": "string"}},
        "maybe": {"type": ["integer", "null"]},
        "anything": {},
        "s": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/word"}]},
        "unset": {"enum": [1, 2]},
    },
    "$defs": {"word": {"const": "word"}},
    "required": ["key"],
    "additionalProperties": False,
}
VALUES: dict[str, Any] = {"count": 1, "text": "x", "names": ["y"], "maybe": 2, "anything": {}, "s": 5, "unset": 1}
ADMITS_NULL = {"maybe", "anything"}


def typed() -> Operation:
    return FunctionOperation(function, Context)


def foreign() -> Operation:
    def tool(arguments: dict[str, Any]) -> None: ...

    return FunctionOperation(tool, Context, input_schema=SCHEMA)


OPERATIONS = {"function": typed(), "schema": foreign()}


@pytest.mark.parametrize("kind", OPERATIONS)
@settings(max_examples=examples(200))
@given(
    arguments=st.fixed_dictionaries(
        {}, optional={name: st.sampled_from([value, None]) for name, value in VALUES.items()}
    )
)
def test_null_is_absent_where_it_is_not_admitted_and_null_where_it_is(kind, arguments):
    operation = OPERATIONS[kind]
    meant = {name: value for name, value in arguments.items() if value is not None or name in ADMITS_NULL}
    assert operation.bind({"key": 1, **arguments}) == operation.bind({"key": 1, **meant})
    if kind == "schema":
        assert operation.bind({"key": 1, **arguments}) == {"arguments": {"key": 1, **meant}}
        assert Definition({"name": "x", "inputSchema": SCHEMA}).check_arguments({"key": 1, **arguments}) == (
            {"key": 1, **meant},
            [],
        )


@pytest.mark.parametrize("kind", OPERATIONS)
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"key": None}, "key"),
        ({"key": None, "count": None}, "key"),
        ({"key": 1, "other": None}, "other"),
        ({"key": 1, "other": None, "count": None}, "other"),
        ({"key": 1, "count": "many", "text": None}, "count"),
        ({"key": 1, "names": [None]}, "names"),
        ({"count": None}, "key"),
    ],
)
def test_null_does_not_excuse_what_is_required_unknown_or_inside(kind, arguments, named):
    with pytest.raises(InvalidArgumentsError, match=named) as caught:
        OPERATIONS[kind].bind(arguments)
    assert len(caught.value.problems) == 1


def test_a_schema_without_properties_has_no_optional_ones():
    for schema in ({}, {"type": "object"}, {"properties": 7, "required": "x"}, {"required": ["a"]}):
        assert ForeignSchema(schema).optional_names == frozenset()
