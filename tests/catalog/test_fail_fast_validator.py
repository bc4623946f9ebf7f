"""Validators that stop at the first fault of a list, with pydantic's own validators as the oracle."""

import dataclasses
from typing import Annotated, Any, Literal

import pydantic
import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypedDict

from deltamcp.catalog.items.signature import fail_fast_validator


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    a: int
    b: list[int] = []
    schema_: dict[str, Any] = pydantic.Field(default={"type": "list"}, alias="schema")


class OtherStrict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    c: int


class Tree(pydantic.BaseModel):
    name: str = ""
    children: "list[Tree]" = []


@dataclasses.dataclass
class Line:
    points: tuple[int, ...]


class Options(TypedDict, total=False):
    sizes: dict[str, int]


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: list[int]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    tricks: set[int]


MANY = 10_000
TYPES: dict[str, Any] = {
    "list": list[int],
    "nested": list[list[Strict]],
    "dict": dict[str, Strict],
    "tuple": tuple[int, ...],
    "set": set[int],
    "model": Strict,
    "tree": Tree,
    "dataclass": Line,
    "typed dict": Options,
    "union": Strict | OtherStrict | list[int],
    "tagged union": Annotated[Cat | Dog, pydantic.Field(discriminator="kind")],
}


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (list[int], [[]] * MANY),
        (list[Strict], [{}] * MANY),
        (dict[str, Strict], {str(number): {} for number in range(MANY)}),
        (Strict, {"a": 1, "b": [[]] * MANY}),
        (Tree, {"children": [{"children": [{"name": 1}] * MANY}] * 3}),
        (Line, {"points": [[]] * MANY}),
        (Options, {"sizes": {str(number): [] for number in range(MANY)}}),
        (list[int | Strict | OtherStrict], [{}] * MANY),
        (Strict | OtherStrict, {str(number): 1 for number in range(MANY)}),
        (Annotated[Cat | Dog, pydantic.Field(discriminator="kind")], {"kind": "cat", "lives": [[]] * MANY}),
    ],
)
def test_the_number_of_faults_does_not_grow_with_the_value(type_, value):
    with pytest.raises(pydantic_core.ValidationError) as raised:
        fail_fast_validator(pydantic.TypeAdapter(type_).core_schema).validate_python(value)
    assert raised.value.error_count() <= 6


_leaves = st.none() | st.integers(-3, 3) | st.text(max_size=3) | st.sampled_from(["cat", "dog"])
_keys = st.sampled_from(
    ["a", "b", "c", "schema", "children", "name", "points", "sizes", "kind", "lives", "tricks", "x"]
)
_values = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=4), max_leaves=12
)


@given(st.sampled_from(sorted(TYPES)), _values)
def test_it_accepts_and_converts_what_pydantic_does(name, value):
    adapter = pydantic.TypeAdapter(TYPES[name])
    validator = fail_fast_validator(adapter.core_schema)
    try:
        expected = adapter.validate_python(value)
    except pydantic_core.ValidationError:
        with pytest.raises(pydantic_core.ValidationError):
            validator.validate_python(value)
    else:
        assert validator.validate_python(value) == expected


@pytest.mark.parametrize("many", [0, 5, 6])
def test_a_union_accepts_all_fields_of_an_alternative(many):
    fields: dict[str, Any] = {f"f{number}": (int, 0) for number in range(30)}
    wide = pydantic.create_model("Wide", __config__=pydantic.ConfigDict(extra="forbid"), **fields)
    validator = fail_fast_validator(pydantic.TypeAdapter(wide | OtherStrict).core_schema)
    assert validator.validate_python(dict.fromkeys(list(fields)[:many], 1)) == wide(
        **dict.fromkeys(list(fields)[:many], 1)
    )
    assert validator.validate_python(dict.fromkeys(fields, 1)) == wide(**dict.fromkeys(fields, 1))
