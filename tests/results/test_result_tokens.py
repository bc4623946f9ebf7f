"""Tokens of a result as a host shows it: texts, and structured content unless the text says the same."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import tokens
from deltamcp.results.blocks import count_result, shown_texts
from deltamcp.results.content import parse_tool_result
from deltamcp.values import RawResult
from tests.support.strategies import any_json


def raw(**fields: Any) -> RawResult:
    return RawResult(json.dumps(fields).encode(), fields)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"content": [text("one"), text("two")]}, ["one", "two"]),
        ({"content": [text('{"a": 1}')], "structuredContent": {"a": 1}}, ['{"a": 1}']),
        ({"content": [text("five")], "structuredContent": {"result": "five"}}, ["five"]),
        ({"content": [text("[1, 2]")], "structuredContent": {"result": [1, 2]}}, ["[1, 2]"]),
        ({"content": [text("one row")], "structuredContent": {"a": 1}}, ["one row", '{"a":1}']),
        ({"content": [], "structuredContent": {"a": 1}}, ['{"a":1}']),
        ({"content": [{"type": "image", "data": "QUFB", "mimeType": "image/png"}]}, []),
        ({"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "whole"}}]}, ["whole"]),
        ({"content": [{"type": "resource_link", "uri": "a:b", "name": "b"}]}, []),
        ({"content": [{"type": "text", "text": 7}, {"type": "unheard-of"}, 5]}, []),
        ({"content": "no list"}, []),
        ({}, []),
    ],
)
def test_what_a_model_reads_of_a_result(fields, shown):
    assert shown_texts(raw(**fields)) == shown


@given(st.lists(st.text(max_size=40), max_size=3), any_json)
def test_a_result_costs_the_same_raw_and_parsed(texts, structured):
    fields: dict[str, Any] = {"content": [text(one) for one in texts]}
    if structured is not None:
        fields["structuredContent"] = structured
    counted = count_result(raw(**fields))
    assert counted == count_result(parse_tool_result(fields))
    assert counted >= sum(map(tokens.count, texts))
