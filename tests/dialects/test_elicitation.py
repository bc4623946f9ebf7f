"""Forms for one value and for models, and the answers that functions get from them."""

import enum
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from deltamcp import ConfigurationError, Context, DeltaServer, connect
from deltamcp.dialects.questions import form_schema
from deltamcp.errors import CallFailedError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Person(BaseModel):
    name: str


@dataclass
class Pet:
    name: str


class Nothing(BaseModel):
    """A form to accept or to decline."""


def only_field(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"value": schema}, "required": ["value"]}


@pytest.mark.parametrize(
    ("schema", "form"),
    [
        (str, only_field(type="string")),
        (int, only_field(type="integer")),
        (float, only_field(type="number")),
        (bool, only_field(type="boolean")),
        (Literal["a", "b"], only_field(type="string", enum=["a", "b"])),
        (Colour, only_field(type="string", enum=["red", "blue"], title="Colour")),
        (["a", "b"], only_field(type="string", enum=["a", "b"])),
        (["a"], only_field(type="string", enum=["a"])),
        (Nothing, {"type": "object", "properties": {}}),
    ],
)
def test_the_form_of_a_plain_type_has_one_field(schema, form):
    assert form_schema(schema) == form


@pytest.mark.parametrize("schema", [3, object, dict[str, int], [], ["a", 3], None])
def test_what_has_no_form_is_refused_in_one_sentence(schema):
    with pytest.raises(ConfigurationError) as caught:
        form_schema(schema)
    assert "\n" not in str(caught.value) and "orm" in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "answer", "content"),
    [
        (str, {"value": "Ann"}, "'Ann'"),
        (int, {"value": 3}, "3"),
        (bool, {"value": True}, "True"),
        (Colour, {"value": "red"}, "<Colour.RED: 'red'>"),
        (["a", "b"], {"value": "b"}, "'b'"),
        (Person, {"name": "Ann"}, "Person(name='Ann')"),
        (Pet, {"name": "Rex"}, "Pet(name='Rex')"),
        ({"properties": {"a": {"type": "string"}}}, {"a": "x"}, "{'a': 'x'}"),
    ],
)
async def test_the_content_is_of_the_type_that_was_asked_for(schema, answer, content):
    server = DeltaServer("x")

    @server.tool
    async def ask(ctx: Context) -> str:
        return repr((await ctx.elicit("What?", schema)).content)

    async with connect(server, on_elicitation=lambda question: answer) as client:
        assert await client.call("ask") == content


@pytest.mark.parametrize("answer", [{}, {"value": "c"}, {"name": "a"}])
async def test_an_answer_that_is_no_choice_is_declined(answer):
    server = DeltaServer("x")

    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", ["a", "b"])).content)

    async with connect(server, on_elicitation=lambda question: answer) as client:
        with pytest.raises(CallFailedError, match="does not fit the form"):
            await client.call("ask")
