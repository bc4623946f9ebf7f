"""The judge of published servers behind the gateway, and the calls that are made up for them."""

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from bench.published.comparison import says_same
from bench.published.harmless_calls import harmless_calls

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def text(*texts: str, **more: Any) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": one} for one in texts], **more}}


def is_same(direct: dict[str, Any], response: dict[str, Any]) -> bool:
    return says_same(direct, response, stored=lambda handle: None)


TABLE = text("#id,name\n\n1,a\n2,b", _meta={"io.github.delta-mcp/result": {"form": "table"}})
SPLIT = text('{"id": 1, "name": "a"}', '{"id": 2, "name": "b"}', structuredContent={"result": ROWS})


@pytest.mark.parametrize(
    ("direct", "response"),
    [
        (text("hello"), text("hello")),
        (text('[{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]'), TABLE),
        (SPLIT, TABLE),
        (text("hello", structuredContent={"content": "hello"}), text("hello")),
        (text("no", isError=True), text("no", isError=True)),
        (text(), text("(empty result)")),
        ({"error": {"code": -32602, "message": "no such tea"}}, text("Error: no such tea", isError=True)),
    ],
)
def test_the_judge_finds_the_same_value_in_another_form(direct, response):
    assert is_same(direct, response)


@pytest.mark.parametrize(
    ("direct", "response"),
    [
        (text("hello"), text("hallo")),
        (SPLIT, text("#id,name\n\n1,a", _meta={"io.github.delta-mcp/result": {"form": "table"}})),
        (text("two rows", structuredContent={"rows": ROWS}), text("two rows")),
        (
            text("two rows", structuredContent={"rows": ROWS}),
            text('{"rows":[{"id":1,"name":"a"},{"id":2,"name":"b"}]}'),
        ),
        (text("no", isError=True), text("no")),
        (text("hello"), {"error": {"code": -32603, "message": "hello"}}),
        ({"result": {"content": [{"type": "image", "data": "eA=="}]}}, text("an image")),
    ],
)
def test_the_judge_finds_what_is_lost(direct, response):
    assert not is_same(direct, response)


TOOLS: list[dict[str, Any]] = [
    {"name": "delete_tea", "inputSchema": {"type": "object"}},
    {"name": "brew", "inputSchema": {"type": "object"}},
    {
        "name": "getTea",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 5},
                "kind": {"enum": ["green", "black"]},
                "grams": {"type": "integer", "minimum": 10},
                "file_path": {"type": "string"},
                "when": {"anyOf": [{"$ref": "#/$defs/When"}, {"type": "null"}]},
                "note": {"type": "string"},
            },
            "required": ["name", "kind", "grams", "file_path", "when"],
            "additionalProperties": False,
            "$defs": {"When": {"type": "object", "properties": {"day": {"type": "boolean"}}, "required": ["day"]}},
        },
    },
]


def test_calls_that_are_made_up_conform_and_change_nothing(tmp_path: Path):
    calls = harmless_calls(TOOLS, tmp_path, most=5)
    assert [call.tool for call in calls] == ["getTea", "brew"]
    jsonschema_rs.validate(TOOLS[2]["inputSchema"], calls[0].arguments)
    assert calls[0].arguments["file_path"] == str(tmp_path / "hello.txt")
