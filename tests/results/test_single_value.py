"""The one value of a tool result, however its server split and repeated it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from deltamcp.results.content import single_data
from deltamcp.values import Image, Text, ToolResult
from deltamcp.work import unlimited_work

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
TEXT = "Two lines\nof text"


def result(*texts: str, structured: Any = UNSET) -> ToolResult:
    return ToolResult([Text(text) for text in texts], structured)


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2)


def sdk_texts(value: Any) -> list[str]:
    """What the official SDK makes of a value: a text for each item of a list, however deep; none for None."""
    if isinstance(value, list):
        return [text for item in value for text in sdk_texts(item)]
    if value is None:
        return []
    return [value if isinstance(value, str) else pretty(value)]


def found(given_result: ToolResult, keeps_structure: bool = False) -> Any:
    data = single_data(given_result, unlimited_work(), keeps_structure)
    if data is None:
        return None
    return data.data if isinstance(data.data, str) else ("json", json.loads(data.data))


@pytest.mark.parametrize(
    ("given_result", "value"),
    [
        (result(*map(pretty, ROWS), structured={"result": ROWS}), ("json", ROWS)),
        (result(json.dumps(ROWS), structured={"result": ROWS}), ("json", ROWS)),
        (result(pretty({"rows": ROWS}), structured={"rows": ROWS}), ("json", {"rows": ROWS})),
        (result(*map(pretty, ROWS)), ("json", ROWS)),
        (result(TEXT, structured={"result": TEXT}), TEXT),
        (result(json.dumps(ROWS), structured={"result": json.dumps(ROWS)}), ("json", ROWS)),
        (result("5", structured={"result": 5}), ("json", 5)),
        (result("true", structured={"result": True}), ("json", True)),
        (result(structured={"result": []}), ("json", [])),
        (result(structured={"result": None}), ("json", None)),
        (result(structured={"result": 7}), ("json", {"result": 7})),
        (result(pretty({"result": 7}), structured={"result": 7}), ("json", {"result": 7})),
        (result(TEXT, structured={"content": TEXT}), TEXT),
        (result(pretty(ROWS), structured={"entities": ROWS}), ("json", ROWS)),
        (result(structured={"entities": []}), ("json", {"entities": []})),
        (result("a", "b", structured={"result": ["a", "b"]}), ("json", ["a", "b"])),
        (result("12345"), "12345"),
    ],
    ids=[
        "SDK rows", "FastMCP rows", "object", "rows of an old SDK", "text", "JSON in a text", "number", "truth",
        "no rows", "nothing", "structure alone", "an object with a result",
        "text under a name", "rows under a name", "a name that no text shows", "texts", "digits",
    ],
)  # fmt: skip
def test_the_value_that_an_sdk_split_and_repeated(given_result, value):
    assert found(given_result) == value


@pytest.mark.parametrize(
    "given_result",
    [
        result(pretty(ROWS[0]), structured={"result": ROWS}),
        result(*map(pretty, ROWS), structured={"result": ROWS[::-1]}),
        result("two rows", structured={"rows": ROWS}),
        result("some text", pretty(ROWS[0])),
        result("a", "b"),
        result("5", structured={"result": "6"}),
        result('[{"a": true}]', structured={"result": [{"a": 1}]}),
        ToolResult([Text(pretty(ROWS)), Image(b"x", "image/png")], {"result": ROWS}),
        ToolResult([]),
    ],
    ids=["fewer", "order", "a sentence", "mixed", "plain texts", "other text", "truth", "image", "empty"],
)
def test_where_texts_and_structure_differ_or_a_block_is_no_text_there_is_no_one_value(given_result):
    assert found(given_result) is None


def test_a_caller_that_expects_structured_content_gets_the_wrapper_too():
    given_result = result(*map(pretty, ROWS), structured={"result": ROWS})
    data = single_data(given_result, unlimited_work(), keeps_structure=True)
    assert data is not None and data.structured == {"result": ROWS} and data.original_result is given_result
    assert found(result(*map(pretty, ROWS)), keeps_structure=True) is None


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_whatever_the_sdk_is_given_comes_back(value):
    is_object = isinstance(value, dict)
    read = found(result(*sdk_texts(value), structured=value if is_object else {"result": value}))
    if isinstance(value, str):
        assert read == value or read == ("json", json.loads(value))
    elif sdk_texts(value) or value in (None, []):
        assert read == ("json", value)
    else:  # lists of nothing but empty lists have no text, and the wrapper says the rest
        assert read in (("json", value), ("json", {"result": value}))


@given(values, values)
def test_two_that_differ_are_never_taken_for_one(value, other):
    read = found(result(*sdk_texts(value), structured={"result": other}))
    if read is not None and sdk_texts(value) != sdk_texts(other) and sdk_texts(value):
        assert read == ("json", {"result": other}) and value == {"result": other}
