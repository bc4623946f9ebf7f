"""Registering functions: every form that can be registered, and errors that say which function and where it is."""

import functools
import inspect
import json
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import Field

from deltamcp import ConfigurationError, Context, DeltaServer, Depends, connect


def search(query: str, limit: int = 3) -> str:
    """Find things."""
    return f"{query} {limit}"


class Shelf:
    """A shelf of books."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find(self, query: str) -> str:
        """Find on the shelf."""
        return f"{self.name} {query}"

    @classmethod
    def kind(cls, query: str) -> str:
        return f"{cls.__name__} {query}"

    @staticmethod
    def plain(query: str) -> str:
        return f"plain {query}"

    def __call__(self, query: str) -> str:
        return f"called {query}"


async def call(server: DeltaServer, name: str, **arguments: Any) -> Any:
    async with connect(server) as client:
        return await client.call(name, **arguments)


def tool(server: DeltaServer, name: str) -> dict[str, Any]:
    return server.engine.catalog.operations[name].tool


@pytest.mark.parametrize(
    ("function", "options", "name", "answer"),
    [
        (search, {}, "search", "x 3"),
        (search, {"name": "seek"}, "seek", "x 3"),
        (Shelf("a").find, {}, "find", "a x"),
        (Shelf.kind, {}, "kind", "Shelf x"),
        (Shelf.plain, {}, "plain", "plain x"),
        (Shelf("a"), {}, "Shelf", "called x"),
        (functools.partial(search, limit=9), {}, "search", "x 9"),
        (lambda query: query, {"name": "same"}, "same", "x"),
    ],
)
async def test_every_form_of_function_is_registered_by_a_plain_call(function, options, name, answer):
    server = DeltaServer("x")
    assert server.tool(function, **options) is function
    assert await call(server, name, query="x") == answer


async def test_the_first_argument_may_be_the_name():
    server = DeltaServer("x")

    @server.tool("seek", title="Seek")
    def find(query: str) -> str:
        return query

    @server.prompt("ask")
    def question(topic: str) -> str:
        return topic

    async with connect(server) as client:
        assert await client.call("seek", query="x") == "x"
        assert (await client.get_prompt("ask", {"topic": "y"}))["messages"][0]["content"]["text"] == "y"
    with pytest.raises(ConfigurationError, match="seek"):
        server.tool("seek", name="look")


async def test_a_static_method_is_registered_in_its_class():
    server = DeltaServer("x")

    class Tools:
        @server.tool
        @staticmethod
        def above(query: str) -> str:
            return query

        @staticmethod
        @server.tool
        def below(query: str) -> str:
            return query

    assert await call(server, "above", query="x") == await call(server, "below", query="x") == "x"


def test_a_partial_is_described_by_its_function_and_an_object_by_its_class():
    server = DeltaServer("x")
    server.tool(functools.partial(search, limit=9))
    server.tool(Shelf("a"))
    assert tool(server, "search")["description"] == "Find things."
    assert tool(server, "Shelf")["description"] == "A shelf of books."


def test_a_text_in_annotated_describes_the_parameter():
    server = DeltaServer("x")

    @server.tool
    def find(
        query: Annotated[str, "What to look for"],
        limit: Annotated[int, "How many", Field(ge=1)] = 3,
        order: Annotated[str, "Not this", Field(description="This")] = "up",
    ) -> str:
        return query

    @server.prompt
    def ask(topic: Annotated[str, "What about"]) -> str:
        return topic

    properties = tool(server, "find")["inputSchema"]["properties"]
    assert properties["query"] == {"type": "string", "description": "What to look for"}
    assert properties["limit"] == {"type": "integer", "description": "How many", "minimum": 1, "default": 3}
    assert properties["order"]["description"] == "This"
    assert server.engine.catalog.prompts["ask"].list_item["arguments"][0]["description"] == "What about"


async def test_names_that_pydantic_uses_itself_are_names_of_parameters():
    server = DeltaServer("x")

    @server.tool
    def find(schema: str, json: str, copy: int = 1) -> str:
        return f"{schema} {json} {copy}"

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert await call(server, "find", schema="a", json="b") == "a b 1"


# Errors


def wrong_type(query: "Nowhere") -> str: ...  # type: ignore[name-defined, empty-body]  # noqa: F821
def wrong_annotation(query: "int |") -> str: ...  # type: ignore[valid-type, empty-body]  # noqa: F722
def private(_query: str) -> str: ...  # type: ignore[empty-body]
def no_schema(shelf: Shelf) -> str: ...  # type: ignore[empty-body]
def no_default(query: str = Shelf) -> str: ...  # type: ignore[assignment, empty-body]
def bare_depends(query: Annotated[str, Depends]) -> str: ...  # type: ignore[empty-body]
def yields(query: str) -> Any:
    yield query


FAULTY: dict[str, tuple[Callable[[Any], Any], Any, str]] = {
    "type": (lambda server: server.tool(wrong_type), wrong_type, "Nowhere"),
    "annotation": (lambda server: server.tool(wrong_annotation), wrong_annotation, "int |"),
    "private": (lambda server: server.tool(private), private, "'_query'"),
    "template": (lambda server: server.resource("a://{query}/{query}")(search), search, "each name once"),
    "schema": (lambda server: server.tool(no_schema), no_schema, "'shelf'"),
    "default": (lambda server: server.tool(no_default), no_default, "'query'"),
    "generator": (lambda server: server.prompt(yields), yields, "return a list"),
    "resource generator": (lambda server: server.resource("a://{query}")(yields), yields, "return a list"),
    "option": (lambda server: server.tool(search, titel="x"), search, "'titel'"),
    "timeout": (lambda server: server.tool(search, timeout=-1), search, "above 0"),
    "no timeout": (lambda server: server.tool(search, timeout=0), search, "above 0"),
    "time as text": (lambda server: server.tool(search, timeout="5"), search, "above 0"),
    "depends": (lambda server: server.tool(bare_depends), bare_depends, "write Depends(function)"),
    "class": (lambda server: server.tool(Shelf), Shelf, "only functions"),
    "no scheme": (lambda server: server.resource("nourischeme")(search), search, "notes://nourischeme"),
    "input schema": (lambda server: server.tool(search, input_schema={"type": "x"}), search, "/type"),
    "category": (lambda server: server.tool(search, category="a b"), search, "a b"),
    "scopes": (lambda server: server.tool(search, scopes="admin"), search, "scopes"),
    "tool name": (lambda server: server.tool("a b")(search), search, "'a b'"),
    "variables": (lambda server: server.resource("a://{b}")(search), search, "'b'"),
    "prompt option": (lambda server: server.prompt(search, uri="x"), search, "'uri'"),
    "completion": (lambda server: server.completion(prompt="p", argument="a")(Shelf.__init__), Shelf.__init__, "Shelf"),
    "no uri": (lambda server: server.resource(search), search, "needs its URI"),
    "method": (lambda server: server.tool(Shelf.find), Shelf.find, "server.tool(Shelf(...).find)"),
    "prompt method": (lambda server: server.prompt(Shelf.find), Shelf.find, "server.prompt(Shelf(...).find)"),
    "resource method": (
        lambda server: server.resource("a://{query}")(Shelf.find),
        Shelf.find,
        "server.resource('a://{query}')(Shelf(...).find)",
    ),
    "class method": (lambda server: server.tool(vars(Shelf)["kind"]), Shelf.kind, "server.tool(Shelf.kind)"),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_an_error_begins_with_the_file_the_line_and_the_name(fault):
    register, function, words = FAULTY[fault]
    with pytest.raises(ConfigurationError) as caught:
        register(DeltaServer("x"))
    line = inspect.getsourcelines(function)[1]
    assert str(caught.value).startswith(f"test_registration.py:{line} {function.__qualname__}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_lambda_needs_a_name():
    for register in (DeltaServer("x").tool, DeltaServer("x").prompt, DeltaServer("x").resource("a://b")):
        with pytest.raises(ConfigurationError, match=r"test_registration\.py:\d+ <lambda>: .*name=\.\.\."):
            register(lambda: "x")


@pytest.mark.parametrize("value", [42, Shelf, None.__class__])
def test_what_is_no_function_is_refused(value):
    with pytest.raises(ConfigurationError, match="only functions"):
        DeltaServer("x").tool(value)


def test_a_builtin_without_known_parameters_is_refused():
    with pytest.raises(ConfigurationError, match=r"^min: .*register a function that calls it"):
        DeltaServer("x").tool(min)


def test_a_name_that_is_taken_names_both_functions():
    server = DeltaServer("x")
    server.tool(search)
    with pytest.raises(ConfigurationError) as caught:
        server.tool(Shelf("a").find, name="search")
    first, second = (inspect.getsourcelines(function)[1] for function in (search, Shelf.find))
    assert str(caught.value).startswith(f"test_registration.py:{second} Shelf.find: 'search' is registered already")
    assert f"test_registration.py:{first} search" in str(caught.value)


def test_a_function_of_an_operations_file_is_named_by_its_line(tmp_path):
    file = tmp_path / "operations.json"
    file.write_text(json.dumps({"operations": {"find": {"it": {"name": "it", "inputSchema": {"type": "object"}}}}}))
    for function, words in ((wrong_type, "Nowhere"), (Shelf.find, "functions={'it': Shelf(...).find}")):
        with pytest.raises(ConfigurationError) as caught:
            DeltaServer("x").operations(file, functions={"it": function})
        line = inspect.getsourcelines(function)[1]
        assert f"test_registration.py:{line} {function.__qualname__}: " in str(caught.value)
        assert words in str(caught.value)


def test_a_function_with_a_parameter_named_self_is_no_method():
    def reflect(self: str, ctx: Context) -> str:
        return self

    server = DeltaServer("x")
    server.tool(reflect)
    assert list(tool(server, "reflect")["inputSchema"]["properties"]) == ["self"]
