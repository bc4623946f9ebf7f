"""What docstrings say of parameters becomes the parameters' descriptions, in three styles."""

from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from deltamcp import Context, DeltaServer, Depends, connect
from deltamcp.catalog.items.docstring import parse_docstring

GOOGLE = """Find books.

Looks into every shelf.

Args:
    query (str): A part of the title,
        in any case.
    limit (int, optional): How many at most:
        - 10 for people
        - 100 for programs

Returns:
    The titles.

Raises:
    ValueError: the query is empty.
"""

NUMPY = """Find books.

Looks into every shelf.

Parameters
----------
query : str
    A part of the title,
    in any case.
limit : int, optional
    How many at most:
    - 10 for people
    - 100 for programs

Returns
-------
list of str
    The titles.

Raises
------
ValueError
    the query is empty.
"""

SPHINX = """Find books.

Looks into every shelf.

:param str query: A part of the title,
    in any case.
:param limit: How many at most:
    - 10 for people
    - 100 for programs
:type limit: int, optional
:returns: The titles.
:raises ValueError: the query is empty.
"""
STYLES = {"google": GOOGLE, "numpy": NUMPY, "sphinx": SPHINX}
PARAMETERS = {
    "query": "A part of the title, in any case.",
    "limit": "How many at most:\n- 10 for people\n- 100 for programs",
}


@pytest.mark.parametrize("style", STYLES)
async def test_each_style_describes_parameters_and_leaves_the_rest(style):
    def find(query: str, limit: int = 10) -> list[str]:
        return []

    find.__doc__ = STYLES[style]
    server = DeltaServer("library")
    server.tool(find)
    async with connect(server) as client:
        (tool,) = await client.list_tools()
        (line,) = await client.tools()
    properties = tool["inputSchema"]["properties"]
    assert {name: one["description"] for name, one in properties.items()} == PARAMETERS
    assert tool["description"].startswith("Find books.\n\nLooks into every shelf.")
    assert "in any case" not in tool["description"]
    assert "The titles." in tool["description"] and "the query is empty" in tool["description"]
    assert line.summary == "Find books"


@pytest.mark.parametrize("style", STYLES)
def test_an_independent_parser_finds_the_same(style):
    parser = pytest.importorskip("docstring_parser", reason="it comes with the packages of make bench")
    found = {one.arg_name: " ".join(one.description.split()) for one in parser.parse(STYLES[style]).params}
    assert found == {name: " ".join(text.split()) for name, text in PARAMETERS.items()}


async def test_annotations_come_first_and_models_are_described_beside_their_reference():
    class Point(BaseModel):
        x: int

    server = DeltaServer("annotated")

    @server.tool
    def move(a: Annotated[int, "From the annotation"], b: Annotated[int, Field(ge=1)], to: Point, again: Point) -> str:
        """Moves.

        Args:
            a: from the docstring
            b: at least one
            to: where to
        """
        return "moved"

    async with connect(server) as client:
        (tool,) = await client.list_tools()
    properties = tool["inputSchema"]["properties"]
    assert properties["a"]["description"] == "From the annotation"
    assert properties["b"] == {"description": "at least one", "minimum": 1, "type": "integer"}
    assert properties["to"]["description"] == "where to" and "description" not in properties["again"]
    assert tool["description"] == "Moves."


async def test_what_no_caller_sends_is_not_described_and_what_is_no_parameter_stays():
    server = DeltaServer("hidden")

    @server.tool
    async def work(count: int, ctx: Context, place: Annotated[str, Depends(lambda: "here")]) -> str:
        """Works.

        Args:
            count: how often
            ctx: the request
            place: where
        """
        return place

    @server.tool
    def play(count: int) -> str:
        """Plays.

        Args:
            count: how often
            tune: one of the house's
        """
        return ""

    @server.tool(input_schema={"type": "object", "properties": {"count": {"type": "integer"}}})
    def raw(arguments: dict[str, object]) -> str:
        """Takes them raw.

        Args:
            count: how often
        """
        return ""

    @server.prompt
    def ask(topic: str) -> str:
        """Asks.

        Args:
            topic: of what
        """
        return topic

    async with connect(server) as client:
        work_tool, play_tool, raw_tool = await client.list_tools()
        (prompt,) = await client.list_prompts()
    assert work_tool["description"] == "Works."
    assert play_tool["description"] == "Plays.\n\nArgs:\n    tune: one of the house's"
    assert "count: how often" in raw_tool["description"]
    assert prompt["description"] == "Asks." and prompt["arguments"][0]["description"] == "of what"


WORDS = st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=1, max_size=6).map(" ".join)
NAMES = st.lists(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), unique=True, min_size=1, max_size=4)


def _google(texts: dict[str, str]) -> str:
    return "Args:\n" + "".join(f"    {name}: {text}\n" for name, text in texts.items())


def _numpy(texts: dict[str, str]) -> str:
    return "Parameters\n----------\n" + "".join(f"{name} : int\n    {text}\n" for name, text in texts.items())


def _sphinx(texts: dict[str, str]) -> str:
    return "".join(f":param {name}: {text}\n" for name, text in texts.items())


@given(st.sampled_from([_google, _numpy, _sphinx]), NAMES, st.data(), WORDS)
def test_every_entry_is_found_and_the_rest_is_untouched(style, names, data, summary):
    texts = {name: data.draw(WORDS) for name in names}
    parts = parse_docstring(f"{summary}.\n\n{style(texts)}\nThe end.", names)
    assert parts.parameters == texts
    assert parts.description == f"{summary}.\n\nThe end."


@given(st.text(alphabet="a: \n-()*Args:Parameters:param", max_size=200))
def test_no_text_breaks_the_parser_or_loses_words_without_parameters(text):
    assert parse_docstring(text, ()).description.split() == text.split()
