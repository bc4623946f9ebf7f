"""The arguments that a schema declares."""

from typing import Any

import pytest

from deltamcp.catalog.declared_arguments import DeclaredArguments

LOCAL = {"$ref": "#/$defs/Item", "$defs": {"Item": {"properties": {"a": {}}, "allOf": [{"$ref": "#"}]}}}

DECLARES_A: dict[str, dict[str, Any]] = {
    "properties": {"properties": {"a": {}}},
    "a branch": {"anyOf": [{"properties": {"b": {}}}, {"properties": {"a": {}}}]},
    "a condition": {"if": {"properties": {"b": {}}}, "then": {"properties": {"a": {}}}},
    "a dependency": {"dependentSchemas": {"b": {"properties": {"a": {}}}}},
    "a reference that refers to itself": LOCAL,
    "a pattern": {"patternProperties": {"^[ab]$": {}}},
    "a pattern that Python does not read": {"patternProperties": {"(?<x>a)": {}}},
    "all": {"additionalProperties": True},
    "all of a type": {"additionalProperties": {"type": "integer"}},
}


@pytest.mark.parametrize("way", DECLARES_A)
def test_an_argument_is_declared_by(way):
    assert DeclaredArguments(DECLARES_A[way]).problems({"a": 1}) == []


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": {"b": {"properties": {"a": {}}}}},
        {"items": {"properties": {"a": {}}}},
        {"patternProperties": {"^b": {}}},
        {"not": {"properties": {"a": {}}}},
        {"$ref": "https://example.com/a.json"},
        {"$ref": "#/none/of/these"},
        {"properties": {"b": {}}, "additionalProperties": False},
    ],
)
def test_an_argument_is_not_declared_by(schema):
    assert len(DeclaredArguments(schema).problems({"a": 1})) == 1


def test_the_first_undeclared_arguments_are_named_beside_the_known_ones():
    declared = DeclaredArguments({"properties": {"city": {}}}, ["page"])
    assert declared.problems({"city": 1, "page": 2, "cty": 3}) == [
        ("cty: no such argument; known arguments: city, page.", "/cty", "additionalProperties")
    ]
    problems = declared.problems({"x" * 1_000 + str(at): at for at in range(1_000)})
    assert len(problems) == 5 and sum(len(problem.text) for problem in problems) < 1_000
