"""What a schema that somebody else wrote says about arguments that do not fit it."""

from typing import Any

import pytest

from deltamcp.catalog.json_schema import ForeignSchema
from deltamcp.work import WorkLimitError


def sentences(schema: ForeignSchema, value: Any) -> list[str]:
    return [problem.text for problem in schema.problems(value)]


SCHEMA = {
    "type": "object",
    "properties": {
        "parent": {"anyOf": [{"$ref": "#/$defs/page"}, {"$ref": "#/$defs/base"}, {"type": "string"}]},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        # It stands before the part that fails, and is longer than any error.
        "padding": {"type": "string", "description": "x" * 1000},
    },
    "required": ["items"],
    "$defs": {
        "page": {"type": "object", "properties": {"page": {"type": "string"}}, "required": ["page"]},
        "base": {
            "type": "object",
            "properties": {"kind": {"const": "base"}, "base": {"type": "integer", "minimum": 1}},
            "required": ["kind", "base"],
        },
        "item": {
            "type": "object",
            "properties": {
                "title": {"type": "string", "description": "What it is called."},
                "state": {"enum": ["open", "closed"]},
                "owner": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "note": {"type": "string"}},
                    "required": ["name"],
                },
            },
            "required": ["title", "owner"],
            "additionalProperties": False,
        },
    },
}


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ({}, ['items: required, but missing; expected [{title, owner:{name, note?}, state?:"open"|"closed"}].']),
        (
            {"items": [{"title": "t"}]},
            ["items.0.owner: required, but missing; expected {name, note?}."],
        ),
        (
            {"items": [{"owner": {"name": "n"}}]},
            ["items.0.title: required, but missing; expected str # What it is called."],
        ),
        (
            {"items": [{"title": "t", "owner": {"name": "n"}, "state": "gone"}]},
            ['items.0.state: "gone" is not one of "open" or "closed"; expected "open"|"closed".'],
        ),
        (
            {"items": [{"title": "t", "owner": {"name": "n"}, "stat": "open"}]},
            ['items.0.stat: no such field; expected {title, owner:{name, note?}, state?:"open"|"closed"}.'],
        ),
        (
            {"items": [], "parent": {"kind": "base", "base": 0}},
            ["parent.base: 0 is less than the minimum of 1; expected int(>=1)."],
        ),
        (
            {"items": [], "parent": 5},
            ['parent: 5 does not fit; expected {page}|{kind:"base", base:int(>=1)}|str.'],
        ),
    ],
)
def test_a_problem_shows_what_the_part_that_failed_takes(arguments, problems):
    assert sentences(ForeignSchema(SCHEMA), arguments) == problems


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "yes", '"yes" does not fit; expected bool|null.'),
        (
            {"anyOf": [{"type": "boolean"}, {"type": "null"}], "description": "Whether."},
            "yes",
            '"yes" does not fit; expected bool|null # Whether.',
        ),
        ({"oneOf": [{"type": "boolean"}, {"type": "integer"}]}, "yes", '"yes" does not fit; expected bool|int.'),
        (
            {"oneOf": [{"type": "number"}, {"type": "integer"}]},
            3,
            "3 fits more than one alternative; expected num|int.",
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            ["y" * 500],
            f'["{"y" * 77}… does not fit; expected str|null.',
        ),
    ],
)
def test_a_value_that_fits_no_branch_of_a_union_is_told_without_jargon(schema, value, problem):
    whole = ForeignSchema({"type": "object", "properties": {"x": schema}})
    assert sentences(whole, {"x": value}) == [f"x: {problem}"]


def doubling(levels: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    return {"$defs": {**definitions, f"d{levels}": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/d0"}}}


@pytest.mark.parametrize("is_own", [True, False])
def test_a_validation_that_would_not_end_is_refused(is_own):
    with pytest.raises(WorkLimitError):
        ForeignSchema(doubling(40), is_own).is_valid({"x": "text"})
    assert not ForeignSchema(doubling(4), is_own).is_valid({"x": 1})


@pytest.mark.parametrize(
    "schema", [{"$ref": "#"}, {"enum": ["x"] * 20_000}, {"properties": {"x": {"$id": "https://a/", "type": "string"}}}]
)
def test_a_peers_schema_that_cannot_be_counted_accepts_every_value(schema):
    assert ForeignSchema(schema)._validator is None
    assert ForeignSchema(schema).is_valid({"x": 1})
    assert ForeignSchema(schema).problems({"x": 1}) == []
    assert ForeignSchema(schema, is_own=True)._validator is not None


class CountedErrors:
    """A validator that counts how many problems it has collected."""

    def __init__(self, validator):
        self._validator = validator
        self.collected = 0

    def is_valid(self, value):
        return self._validator.is_valid(value)

    def iter_errors(self, value):
        errors = list(self._validator.iter_errors(value))
        self.collected += len(errors)
        return iter(errors)


ITEMS = {"type": "object", "required": [f"f{number}" for number in range(20)], "additionalProperties": False}
LARGE = {
    "type": "object",
    "properties": {
        "values": {"type": "array", "items": {"anyOf": [ITEMS, {"type": "integer"}]}},
        "name": {"type": "string"},
        "note": {"type": "string"},
    },
    "required": ["name"],
}


def test_the_problems_of_a_large_value_are_not_all_collected():
    schema = ForeignSchema(LARGE)
    counted = schema.__dict__["_validator"] = CountedErrors(schema._validator)
    assert sentences(schema, {"values": [{}] * 5_000, "note": None, "name": 1}) == [
        f"values: [{'{},' * 26}… does not fit; expected [{{}}|int].",
        "name: 1 does not fit; expected str.",
        "note: null does not fit; expected str.",
        "There may be more problems.",
    ]
    assert counted.collected == 0


def test_a_null_among_large_arguments_is_left_out():
    arguments = {"values": [1] * 5_000, "name": "n", "note": None}
    assert ForeignSchema(LARGE).drop_nulls(arguments) == {"values": [1] * 5_000, "name": "n"}


def test_the_problems_of_a_small_value_are_counted():
    schema = ForeignSchema({"type": "object", "properties": {"v": {"items": {"type": "integer"}}}})
    problems = sentences(schema, {"v": [[]] * 8})
    assert problems[0] == 'v.0: [] is not of type "integer"; expected int.'
    assert problems[5:] == ["There are 3 more problems."]
    assert len(" ".join(sentences(schema, {"v": ["x" * 9_000] * 1}))) < 2_000


def test_an_output_of_any_size_is_checked():
    schema = ForeignSchema({"items": {"type": "integer"}}, is_own=True)
    assert schema.output_problem(list(range(200_000))) is None
    assert schema.output_problem([1, "x"]) == '1: "x" is not of type "integer"; expected int.'
    assert schema.output_problem(["x"] * 200_000) == "The value does not fit the output schema."


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        ({}, [("/items", "required")]),
        ({"items": [{"owner": {"name": "n"}, "title": "x", "state": "new"}]}, [("/items/0/state", "enum")]),
        ({"items": [], "padding": 1}, [("/padding", "type")]),
        ({"items": [], "parent": 5}, [("/parent", "anyOf")]),
    ],
)
def test_programs_get_the_place_of_each_problem_and_the_keyword(arguments, places):
    problems = ForeignSchema(SCHEMA).problems(arguments)
    assert sorted((problem.pointer, problem.keyword) for problem in problems) == sorted(places)
