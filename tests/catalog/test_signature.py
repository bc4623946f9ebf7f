"""Schemas and arguments of authors' functions, with pydantic's own schemas as the oracle."""

import dataclasses
import datetime
import enum
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pydantic
import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from deltamcp import ConfigurationError, Context, DeltaServer
from deltamcp.catalog.arguments import InvalidArgumentsError
from deltamcp.catalog.items import function as functions
from deltamcp.catalog.items.function_operation import FunctionOperation
from deltamcp.catalog.items.signature import Signature


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: float
    y: float = 0.0


@dataclasses.dataclass
class Line:
    start: Point
    end: Point


class Options(TypedDict, total=False):
    deep: bool


def plain(query: str, limit: int = 10, tags: list[str] | None = None, exact: bool = False) -> str:
    return query


def literal(state: Literal["open", "closed"] = "open", ids: set[int] = set()) -> str:  # noqa: B006
    return state


def annotated(
    count: Annotated[int, Field(ge=1, le=9, description="How many")], when: datetime.date | None = None
) -> None: ...


def models(line: Line, colour: Colour, options: Options | None = None) -> None: ...


def aliased(from_: Annotated[str, Field(alias="from")], to: str = Field(default="x", description="Where")) -> str:
    return from_ + to


def untyped(anything, other=3):
    return anything


def _without_titles(schema: Any) -> Any:
    if isinstance(schema, dict):
        kept = {key: value for key, value in schema.items() if key not in ("title", "additionalProperties")}
        return {key: _without_titles(value) for key, value in kept.items()}
    return [_without_titles(item) for item in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("function", [plain, literal, annotated, models, aliased, untyped])
def test_a_schema_is_pydantics_without_the_titles_and_null_defaults(function):
    ours = Signature(function, Context).schema
    theirs = _without_titles(pydantic.TypeAdapter(function).json_schema())
    for schema in theirs["properties"].values():
        if schema.get("default", ...) is None:
            del schema["default"]

    assert _without_titles(ours) == theirs
    assert "title" not in repr(ours)


def test_a_function_without_parameters_takes_nothing():
    signature = Signature(lambda: None, Context)

    assert signature.schema == {"type": "object", "additionalProperties": False}
    assert signature.bind({}) == {}


def test_arguments_become_the_functions_own_types():
    bound = Signature(models, Context).bind(
        {"line": {"start": {"x": 1}, "end": {"x": 2, "y": 3}}, "colour": "blue", "options": {"deep": True}}
    )

    assert bound == {"line": Line(Point(x=1), Point(x=2, y=3)), "colour": Colour.BLUE, "options": {"deep": True}}


def test_an_alias_is_what_the_client_sends():
    signature = Signature(aliased, Context)

    assert signature.names == ("from", "to")
    assert signature.bind({"from": "a"}) == {"from_": "a", "to": "x"}


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (plain, {}, ["query", "required", "expected str."]),
        (plain, {"query": "x", "limit": "many"}, ["limit", "integer", '"many"']),
        (plain, {"query": "x", "limt": 3}, ["limt", "no such argument", "limit"]),
        (plain, {"query": "x", "tags": [1]}, ["tags.0", "expected str."]),
        (annotated, {"count": 12}, ["count", "less than or equal to 9", "<=9)"]),
        (models, {"line": {"start": {"x": "?"}, "end": {"x": 1}}, "colour": "red"}, ["line.start.x", "number"]),
        (models, {"line": {"start": {"x": 1}, "end": {"x": 1}}, "colour": "green"}, ["colour", "red", "blue"]),
    ],
)
def test_what_does_not_fit_is_told_by_field_with_the_schema_that_governs_it(function, arguments, words):
    with pytest.raises(InvalidArgumentsError) as caught:
        Signature(function, Context).bind(arguments)

    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_every_wrong_field_is_told_at_once():
    with pytest.raises(InvalidArgumentsError) as caught:
        Signature(plain, Context).bind({"limit": "x", "exact": "perhaps"})

    assert len(caught.value.problems) == 3


def test_the_context_is_not_an_argument():
    def tool(a: int, ctx: Context) -> None: ...

    signature = Signature(tool, Context)

    assert signature.function_shape.context_name == "ctx"
    assert signature.names == ("a",)


def test_partials_methods_and_callable_objects_work_like_functions():
    class Tool:
        async def __call__(self, a: int) -> int:
            return a

        def method(self, b: str) -> str:
            return b

    assert Signature(functools.partial(plain, "fixed"), Context).names == ("limit", "tags", "exact")
    assert Signature(Tool(), Context).function_shape.is_async
    assert Signature(Tool().method, Context).names == ("b",)


def _star(*args: int) -> None: ...
def _stars(**kwargs: int) -> None: ...
def _positional(a: int, /) -> None: ...
def _no_schema(a: functools.partial[int]) -> None: ...


@pytest.mark.parametrize("function", [_star, _stars, _positional, _no_schema])
def test_a_parameter_that_cannot_be_offered_is_told_at_registration(function):
    with pytest.raises(ConfigurationError, match=rf"^test_signature\.py:\d+ {function.__name__}: "):
        DeltaServer("x").tool(function)


def test_named_types_get_an_output_schema_and_others_do_not():
    async def model() -> Point: ...  # type: ignore[empty-body]
    async def data() -> Line: ...  # type: ignore[empty-body]
    async def typed() -> Options: ...  # type: ignore[empty-body]
    async def number() -> int: ...  # type: ignore[empty-body]
    async def free() -> dict[str, int]: ...  # type: ignore[empty-body]

    functions: dict[bool, list[Callable[[], Any]]] = {True: [model, data, typed], False: [number, free]}
    for has_schema, group in functions.items():
        for function in group:
            assert ("outputSchema" in FunctionOperation(function, Context).tool) is has_schema


def test_a_result_that_breaks_its_output_schema_is_refused():
    async def tool() -> Point: ...  # type: ignore[empty-body]

    operation = FunctionOperation(tool, Context)
    raw = FunctionOperation(tool, Context, output_schema={"type": "object", "required": ["a"]})

    assert operation.structured_content(Point(x=1)) == {"x": 1.0, "y": 0.0}
    with pytest.raises(ValueError, match="x: "):
        operation.structured_content({"x": "far"})
    with pytest.raises(ValueError, match="a"):
        raw.structured_content({})


def test_a_foreign_schema_is_enforced_as_it_stands():
    def tool(arguments: dict[str, Any]) -> None: ...

    operation = FunctionOperation(
        tool, Context, input_schema={"type": "object", "properties": {"a": {"type": "integer"}}}
    )

    assert operation.bind({"a": 1, "b": [None]}) == {"arguments": {"a": 1, "b": [None]}}
    with pytest.raises(InvalidArgumentsError, match=r"a: .*integer"):
        operation.bind({"a": "1"})


def test_a_foreign_schema_never_reaches_for_the_network():
    def tool(arguments: dict[str, Any]) -> None: ...

    schema = {"$ref": "https://example.com/schema.json"}

    with pytest.raises(ConfigurationError, match="nothing is fetched"):
        DeltaServer("x").tool(input_schema=schema)(tool)
    assert FunctionOperation(tool, Context, input_schema=schema).bind({"a": 1}) == {"arguments": {"a": 1}}


@pytest.mark.parametrize("name", ["", "two words", "a/b", "ä", "x" * 129])
def test_a_tool_name_outside_the_allowed_characters_is_refused(name):
    with pytest.raises(ConfigurationError):
        DeltaServer("x").tool(name=name or " ")(plain)


def test_parameters_are_read_as_inspect_reads_them():
    def plain(a, b=1, *, c, d=2): ...
    def none(): ...
    def spread(a, *rest, **options): ...
    def positional(a, /, b): ...
    @functools.wraps(plain)
    def wrapped(*arguments, **options): ...

    for function in (
        plain,
        none,
        spread,
        positional,
        wrapped,
        functools.partial(plain, c=3),
        Point,
        Point(x=1).__str__,
    ):
        expected = [
            (name, parameter.default, parameter.kind not in functions._NOT_BY_NAME)
            for name, parameter in inspect.signature(function).parameters.items()
        ]
        assert functions._parameters(function) == expected


@dataclasses.dataclass
class Address:
    city: str = ""


@pytest.mark.parametrize(
    ("arguments", "path"),
    [({"address": {"cty": "y"}}, "address.cty"), ({"others": [{"city": "x"}, {"cty": "y"}]}, "others.1.cty")],
)
def test_an_unknown_field_of_a_dataclass_is_named(arguments, path):
    def move(address: Address | None = None, others: list[Address] = []) -> None: ...  # noqa: B006

    with pytest.raises(InvalidArgumentsError) as refused:
        Signature(move, Context).bind(arguments)
    sentence = f'{path}: no such field; expected {{city?=""}}.'
    assert refused.value.problems == [(sentence, f"/{path.replace('.', '/')}", "additionalProperties")]


def totals(values: list[int], points: list[Point] = []) -> None: ...  # noqa: B006


def problems_of(arguments: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidArgumentsError) as refused:
        Signature(totals, Context).bind(arguments)
    return [problem.text for problem in refused.value.problems]


def test_the_first_problems_are_described_and_the_others_counted():
    problems = problems_of({"values": [[]] * 8})
    assert problems[0] == "values.0: Input should be a valid integer; got []; expected int."
    assert problems[5:] == ["There are 3 more problems."]


@pytest.mark.parametrize(
    "arguments",
    [
        {"values": [[]] * 10_000},
        {"values": [], "points": [{}] * 10_000},
        {"values": ["x" * 1_000_000]},
        {"values": [["x"] * 10_000]},
        {"values": [], **{str(number): 1 for number in range(10_000)}},
        {"values": [], "x" * 1_000_000: 1},
    ],
)
def test_the_problems_of_large_arguments_are_short(arguments):
    problems = problems_of(arguments)
    assert len(problems) <= 6
    assert len(" ".join(problems)) < 2_000


def test_that_there_may_be_more_problems_is_said_where_not_all_were_looked_for():
    assert problems_of({"values": [[]] * 10_000}) == [
        "values.0: Input should be a valid integer; got []; expected int.",
        "There may be more problems.",
    ]


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({}, ("/size", "required")),
        ({"size": "much"}, ("/size", "type")),
        ({"size": 0}, ("/size", "minimum")),
        ({"size": 1, "color": "pink"}, ("/color", "enum")),
        ({"size": 1, "name": ""}, ("/name", "minLength")),
        ({"size": 1, "more": 1}, ("/more", "additionalProperties")),
        ({"size": 1, "at/~": 1}, ("/at~1~0", "additionalProperties")),
    ],
)
def test_programs_get_the_place_of_each_problem_and_the_keyword(arguments, place):
    def paint(
        size: Annotated[int, Field(ge=1)],
        color: Literal["red", "blue"] = "red",
        name: Annotated[str, Field(min_length=1)] = "x",
    ) -> None: ...

    with pytest.raises(InvalidArgumentsError) as refused:
        Signature(paint, Context).bind(arguments)
    assert [problem[1:] for problem in refused.value.problems] == [place]
