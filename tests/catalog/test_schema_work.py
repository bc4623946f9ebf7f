"""The work of validations, counted before they are done."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from deltamcp.catalog.json_schema import SchemaWork, UnboundedSchemaError
from deltamcp.work import Work, WorkLimitError
from tests.support.strategies import any_json, any_schema


def visits(schema: dict[str, Any], value: Any, steps: int = 10_000) -> float:
    return SchemaWork(schema, Work(steps)).exact_visits(value, Work(steps))


def nested(times: int, wrap: Callable[[Any], Any], inmost: Any) -> Any:
    for _ in range(times):
        inmost = wrap(inmost)
    return inmost


def doubling(levels: int, keyword: str = "allOf") -> dict[str, Any]:
    definitions = {f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)} | {
        f"d{levels}": {"type": "string"}
    }
    return {"$defs": definitions, "properties": {"x": {"$ref": "#/$defs/d0"}}}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_references_that_double_are_counted_in_few_steps(keyword):
    assert visits(doubling(40, keyword), {"x": "text"}, steps=1000) > 2**40


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({}, 1, 1),
        ({"properties": {"a": {}, "b": {}}}, {"a": 1}, 2),
        ({"additionalProperties": {}}, {"a": 1, "b": 2}, 3),
        ({"items": {"anyOf": [{}, {}]}}, [1, 2], 7),
        ({"prefixItems": [{}], "items": {}}, [1, 2], 4),
        ({"items": [{}], "additionalItems": {}}, [1, 2], 4),
        ({"propertyNames": {}}, {"a": 1}, 2),
        ({"not": {"if": {}, "then": {}, "else": {}}}, 1, 5),
        ({"allOf": [{}], "unevaluatedProperties": False}, {"a": 1}, 6),
        ({"enum": ["a"] * 80}, "b", 11),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"$anchor": "x"}}}, 1, 2),
        ({"$ref": "#x", "$defs": {"a": {"$anchor": "x"}}}, 1, 2),
        ({"$id": "https://a/b", "$ref": "https://a/b#/$defs/a", "$defs": {"a": {}}}, 1, 2),
    ],
)
def test_every_part_that_applies_to_a_value_is_a_visit(schema, value, expected):
    assert visits(schema, value) == expected


def test_a_recursive_schema_is_counted_by_the_value():
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    value = nested(20, lambda inner: {"left": inner, "right": 1}, 1)
    assert visits(tree, value) == 20 * 4 + 1
    twice = {"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}
    assert visits(twice, nested(40, lambda inner: {"a": inner}, 1)) > 2**40


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}]}}},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/$defs/none"},
        {"$ref": "#none"},
        {"properties": {"a": {"$id": "https://example.com/", "$ref": "#/$defs/b"}}},
        nested(200, lambda inner: {"not": inner}, {}),
    ],
)
def test_a_schema_whose_work_has_no_bound_is_told(schema):
    with pytest.raises(UnboundedSchemaError):
        SchemaWork(schema, Work(10_000))


def test_a_schema_that_is_too_large_is_not_read_to_its_end():
    with pytest.raises(WorkLimitError):
        SchemaWork({"enum": ["x"] * 100_000}, Work(10_000))


def test_a_value_that_is_too_large_is_not_counted_to_its_end():
    with pytest.raises(WorkLimitError):
        visits({"items": {"items": {}}}, [[1]] * 100_000)


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("^[a-z]{1,10000}$", 0, 1_000),
        (r"^\d{4}-\d{2}-\d{2}$", 0, 100_000),
        ("(a{1,50}){1,50}b", 10_000_000, 1e9),
        ("[ab]*a[ab]{1000}c", 5_000_000, 1e9),
    ],
)
def test_a_pattern_takes_work_for_its_states_and_the_text(pattern, least, most):
    assert least <= visits({"pattern": pattern}, "a" * 10_000) <= most


@given(any_schema, any_json)
def test_any_schema_is_counted_or_has_no_bound(schema, value):
    if not isinstance(schema, dict):
        return
    try:
        counted = SchemaWork(schema, Work(10_000))
        exact = counted.exact_visits(value, Work(10_000))
    except (UnboundedSchemaError, WorkLimitError):
        return
    assert 1 <= exact <= counted.visits(value, 10_000, Work(10_000))
