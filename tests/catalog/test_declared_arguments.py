"""The arguments that a schema declares."""

from typing import Any

import pytest

from deltamcp.catalog.arguments import DeclaredArguments

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


CLOSED = {"properties": {"a": {}}, "additionalProperties": False}
NESTED: dict[str, tuple[dict[str, Any], Any]] = {
    "an object": (CLOSED, {"b": 1}),
    "a reference": ({"$ref": "#/$defs/Closed"}, {"b": 1}),
    "an object or null": ({"anyOf": [{"$ref": "#/$defs/Closed"}, {"type": "null"}]}, {"b": 1}),
    "all of one": ({"allOf": [CLOSED]}, {"b": 1}),
}


@pytest.mark.parametrize("way", NESTED)
def test_an_argument_inside_another_is_forbidden_by(way):
    schema, value = NESTED[way]
    root = {"properties": {"x": schema, "rows": {"items": schema}}, "$defs": {"Closed": CLOSED}}
    found = DeclaredArguments(root, is_own=False).find_undeclared({"x": value, "rows": [{"a": 1}, value]})
    assert [(one.name, one.path, one.is_forbidden) for one in found] == [
        ("x.b", ("x", "b"), True),
        ("rows[1].b", ("rows", 1, "b"), True),
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"properties": {"a": {}}, "additionalProperties": {}},
        {"anyOf": [{"properties": {"a": {}}}, {"additionalProperties": True}]},
        {"properties": {"a": {}}, "allOf": [{"$ref": "https://example.com/b.json"}]},
        {"properties": {"a": {}}, "$ref": 7},
    ],
)
def test_nothing_is_said_of_what_a_schema_may_admit(schema):
    declared = DeclaredArguments({"properties": {"x": schema}}, is_own=False)
    assert declared.find_undeclared({"x": {"b": {"c": 1}}}) == []


def test_an_argument_that_some_objects_may_have_is_not_forbidden():
    schema = {"anyOf": [CLOSED, {"properties": {"c": {}}}]}
    (found,) = DeclaredArguments({"properties": {"x": schema}}, is_own=False).find_undeclared({"x": {"b": 1}})
    assert not found.is_forbidden


def test_a_schema_that_contains_itself_is_kept_once_for_each_of_its_parts():
    tree: dict[str, Any] = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    declared = DeclaredArguments(tree, is_own=False)
    for way in range(64):
        value: dict[str, Any] = {"leaf": 1}
        for bit in f"{way:06b}":
            value = {("left", "right")[int(bit)]: value}
        (found,) = declared.find_undeclared(value)
        assert len(found.path) == 7
    assert len(declared.parts) == 2


def test_however_many_values_there_are_only_the_first_are_looked_at():
    declared = DeclaredArguments({"properties": {"rows": {"items": CLOSED}}}, is_own=False)
    assert len(declared.find_undeclared({"rows": [{"b": 1}] * 100_000})) == 100
    assert declared.find_undeclared({"rows": [{"a": 1}] * 100_000}) == []
