"""What a schema that somebody else wrote says about arguments that do not fit it."""

import pytest

from deltamcp.catalog.json_schema import ForeignSchema

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
    assert ForeignSchema(SCHEMA).problems(arguments) == problems


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
            f'["{"y" * 78}… does not fit; expected str|null.',
        ),
    ],
)
def test_a_value_that_fits_no_branch_of_a_union_is_told_without_jargon(schema, value, problem):
    assert ForeignSchema({"type": "object", "properties": {"x": schema}}).problems({"x": value}) == [f"x: {problem}"]
