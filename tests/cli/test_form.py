"""The form of an elicitation: what a field takes of what was typed, and which answers of a script fit."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.cli.terminal.elicitation import Field, Form, UnfitAnswerError
from tests.support.strategies import any_json

TITLED = {"oneOf": [{"const": "a", "title": "First"}, {"const": "b", "title": "Second"}], "type": "string"}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, " kept ", " kept "),
        ({"type": "integer"}, "5", 5),
        ({"type": "number"}, "-1.5", -1.5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "string", "format": "email"}, "a@example.com", "a@example.com"),
        ({"type": "string", "format": "date"}, "2026-07-28", "2026-07-28"),
        ({"type": "string", "enum": ["a", "b"]}, "b", "b"),
        ({"type": "string", "enum": ["a", "b"]}, "2", "b"),
        ({"type": "string", "enum": ["2", "1"]}, "2", "2"),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["First", "Second"]}, "second", "b"),
        (TITLED, "First", "a"),
        (TITLED, "b", "b"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}, "3, a", ["c", "a"]),
        ({"type": "array", "items": {"anyOf": TITLED["oneOf"]}}, "Second", ["b"]),
        ({"type": "array", "items": {"enum": ["a"]}}, ",", []),
    ],
)
def test_what_was_typed_becomes_a_value_of_the_field(schema, text, value):
    assert Field("x", schema, False).parse(text) == value


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer"}, "five"),
        ({"type": "integer"}, "5.5"),
        ({"type": "number"}, "NaN"),
        ({"type": "number", "maximum": 4}, "5"),
        ({"type": "boolean"}, "perhaps"),
        ({"type": "string", "minLength": 3}, "ab"),
        ({"type": "string", "format": "email"}, "nobody"),
        ({"type": "string", "format": "uri"}, "no uri"),
        ({"type": "string", "enum": ["a", "b"]}, "3"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 1}, "a,b"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "a,c"),
        (TITLED, "Third"),
    ],
)
def test_what_does_not_fit_is_refused(schema, text):
    with pytest.raises(UnfitAnswerError):
        Field("x", schema, False).parse(text)


def form(required: list[str] | None = None, **properties: Any) -> Form:
    schema = {"type": "object", "properties": properties, "required": required or []}
    return Form({"message": "Which?", "requestedSchema": schema})


def test_fields_that_a_script_leaves_out_have_their_defaults():
    asked = form(["name"], name={"type": "string"}, age={"type": "integer", "default": 30}, left={"type": "string"})

    assert asked.fill_in({"name": "Ann"}) == {"name": "Ann", "age": 30}


@pytest.mark.parametrize("content", [{}, {"name": 5}, {"name": "Ann", "nmae": "Ann"}, {"name": "Ann", "kind": "c"}])
def test_an_answer_of_a_script_that_does_not_fit_is_refused(content):
    asked = form(["name"], name={"type": "string"}, kind={"type": "string", "enum": ["a", "b"]})

    with pytest.raises(UnfitAnswerError):
        asked.fill_in(content)


def test_a_question_in_one_line_names_every_field_and_what_it_takes():
    asked = form(["name"], name={"type": "string"}, kind={"type": "string", "enum": ["a", "b"]})

    assert str(asked) == "'Which?' (name: text, required; kind: one of a, b)"


@given(st.dictionaries(st.sampled_from(["message", "mode", "url", "requestedSchema"]), any_json), st.text())
def test_a_malformed_question_breaks_nothing(params, text):
    asked = Form(params)

    assert str(asked)
    for field in asked.fields:
        with contextlib.suppress(UnfitAnswerError):
            field.parse(text)


@given(any_json, st.text(), st.booleans())
def test_a_malformed_field_breaks_nothing(schema, text, required):
    field = Field("x", schema, required)

    assert field.label
    assert field.kind
    with contextlib.suppress(UnfitAnswerError):
        field.parse(text)


@given(st.lists(st.text(min_size=1).filter(lambda text: text == text.strip()), min_size=1, max_size=5, unique=True))
def test_every_choice_can_be_typed_by_its_value(values):
    field = Field("x", {"type": "string", "enum": values}, True)

    assert [field.parse(value) for value in values] == values
