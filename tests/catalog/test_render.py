"""Texts of tool definitions: their content and their size, for any schema."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import tokens
from deltamcp.catalog.text import prose, tool_text
from deltamcp.catalog.text.clean_text import clean
from deltamcp.catalog.text.parameter_text import deepest_names
from tests.support.call_count import count_calls
from tests.support.strategies import any_schema

ISSUES = {
    "name": "list_issues",
    "description": "List issues of a repository. Newest first.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "default": 30, "maximum": 100, "description": "How many. At most 100."},
            "state": {"enum": ["open", "closed"], "default": "open"},
            "owner": {"type": "string", "description": "Who owns it"},
            "repo": {"type": "string"},
        },
        "required": ["owner", "repo"],
    },
}


def test_a_signature():
    assert tool_text.signature_line(ISSUES) == 'list_issues(owner, repo, limit?:int=30, state?:"open"|"closed"=open)'


def test_a_signature_with_notes():
    assert tool_text.signature_with_notes(ISSUES) == (
        "list_issues(\n"
        "owner # Who owns it\n"
        "repo\n"
        "limit?:int=30 # How many. At most 100.\n"
        'state?:"open"|"closed"=open\n'
        ")\n"
        "List issues of a repository. Newest first."
    )


def test_every_word_has_limits_too():
    assert "limit?:int(<=100)=30 # How many. At most 100." in tool_text.full_text(ISSUES)


def shown(properties, **schema):
    return tool_text.signature_line(
        {"name": "f", "inputSchema": {"type": "object", "properties": properties, **schema}}
    )


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({"type": "string"}, "a?"),
        ({"type": "number"}, "a?:num"),
        ({"type": "boolean", "default": False}, "a?:bool=false"),
        ({"type": "array", "items": {"type": "string"}}, "a?:[str]"),
        ({"type": "array"}, "a?:[any]"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}, "a?:int"),
        ({"type": ["string", "null"]}, "a?"),
        ({"type": ["integer", "string"]}, "a?:int|str"),
        ({"const": "x"}, 'a?:"x"'),
        ({"enum": [1, 2, None]}, "a?:1|2"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "a?:{*:int}"),
        ({"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}, "a?:{b:int}"),
        ({"allOf": [{"properties": {"b": {}}}, {"properties": {"c": {}}, "required": ["c"]}]}, "a?:{c:any, b?:any}"),
        ({"default": "two words"}, 'a?:any="two words"'),
        ({}, "a?:any"),
        (True, "a?:any"),
    ],
)
def test_types(node, text):
    assert shown({"a": node}) == f"f({text})"


def test_references_are_followed_and_circles_end():
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}, "x": {"type": "integer"}}}
    assert shown({"a": {"$ref": "#/$defs/tree"}}, **{"$defs": {"tree": tree}}) == "f(a?:{next?:…, x?:int})"
    assert shown({"a": {"$ref": "https://example.com/x.json"}}) == "f(a?:any)"


def test_what_is_inside_a_parameter_follows_it_and_is_told_once():
    person = {"type": "object", "properties": {"name": {"type": "string", "description": "In full"}}}
    tool = {"name": "f", "inputSchema": {"properties": {"from": person, "to": person}}}
    assert tool_text.full_text(tool) == "f(\nfrom?:{…}\n.name? # In full\nto?:{…} as from\n)"


def test_parameters_with_one_note_share_a_line():
    same = {"type": "string", "description": "A name"}
    tool = {"name": "f", "inputSchema": {"properties": {"a": same, "b": {"type": "integer"}, "c": same}}}
    assert tool_text.signature_with_notes(tool) == "f(\na?, c? # A name\nb?:int\n)"


tools = st.fixed_dictionaries({"name": st.just("f"), "inputSchema": any_schema}, optional={"description": st.text()})


@given(tools)
def test_any_schema_has_its_texts(tool):
    for text in (tool_text.signature_line(tool), tool_text.signature_with_notes(tool), tool_text.full_text(tool)):
        assert text.startswith("f(")
    assert tokens.count(tool_text.signature_with_notes(tool)) <= tool_text.NOTES_TOKENS


@given(tools, st.text(max_size=60), st.integers(10, 60))
def test_a_line_keeps_its_budget(tool, summary, budget):
    line = tool_text.signature_and_summary(tool, "f", prose.summary(summary), budget)
    assert tokens.count(line) <= budget
    assert "\n" not in line


MAIL = {
    "name": "send_mail",
    "description": "Send a mail.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "body": {"$ref": "#/$defs/request"},
            **{f"option{n}": {"enum": [f"choice{n}", f"other{n}"], "description": f"Option {n}."} for n in range(16)},
        },
        "required": ["body"],
        "$defs": {
            "request": {
                "type": "object",
                "properties": {"message": {"$ref": "#/$defs/message"}, "save": {"type": "boolean"}},
                "required": ["message"],
            },
            "message": {
                "type": "object",
                "properties": {
                    "subject": {"type": "string"},
                    "body": {
                        "type": "object",
                        "properties": {"type": {"enum": ["text", "html"]}, "content": {"type": "string"}},
                        "required": ["type", "content"],
                    },
                    "to": {"type": "array", "items": {"type": "object", "properties": {"address": {}, "name": {}}}},
                },
                "required": ["subject", "body", "to"],
            },
        },
    },
}


def test_a_line_shows_what_a_call_needs_inside_its_objects():
    line = tool_text.signature_and_summary(MAIL, "send_mail", "Send a mail", 34)
    assert line.startswith(
        'send_mail(body:{message:{subject, body:{type:"text"|"html", content}, to:[{…}]}, …}, …16 optional'
    )


def test_notes_name_every_required_field_and_where_the_rest_is():
    text = tool_text.signature_with_notes(MAIL)
    assert (
        'body:{message:{subject, body:{type:"text"|"html", content}, to:[{address?, name?}]}, save?}, option0?' in text
    )
    assert text.endswith('What … leaves out: get_schema("send_mail.body" or detail="full")')
    assert "body.message.to:[{address?:any, name?:any}]" in tool_text.signature_with_notes(
        MAIL, None, "body.message.to"
    )


def test_an_object_that_requires_nothing_shows_the_names_it_has():
    body = {"type": "object", "properties": {f"field{n}": {"type": "object"} for n in range(30)}}
    tool = {"name": "f", "inputSchema": {"properties": {"body": body}, "required": ["body"]}}
    assert tool_text.signature_and_summary(tool, "f", "", 20) == "f(body:{field0?, field1?, field2?, field3?, …})"


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}, "x:{a}|{b:1}"),
        (
            {"oneOf": [{"required": ["p"]}, {"required": ["q"]}], "properties": {"p": {}, "q": {}}},
            "x:{p:any, q?:any}|{q:any, p?:any}",
        ),
        ({"type": "array", "items": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}}, "x:[{a, b:1}]"),
        ({"type": "object", "additionalProperties": {"$ref": "#/$defs/a"}}, "x:{*:{a}}"),
    ],
)
def test_required_fields_are_found_behind_every_keyword(node, text):
    definitions = {
        "a": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        "b": {"type": "object", "properties": {"b": {"const": 1}}, "required": ["b"]},
    }
    assert shown({"x": node}, required=["x"], **{"$defs": definitions}) == f"f({text})"


def test_a_schema_that_expands_without_end_has_its_texts():
    names = [f"d{n}" for n in range(14)]
    node = {"type": "object", "properties": {name: {"$ref": f"#/$defs/{name}"} for name in names}, "required": names}
    tool = {"name": "f", "inputSchema": {**node, "$defs": {name: dict(node) for name in names}}}
    assert all(re.search(rf"\b{name}\b", tool_text.signature_with_notes(tool)) for name in names)
    assert tokens.count(tool_text.signature_with_notes(tool)) <= tool_text.NOTES_TOKENS
    assert tokens.count(tool_text.signature_and_summary(tool, "f", "", 34)) <= 34


@st.composite
def nested_tools(draw):
    """Draws a tool whose fields all have other names, and the names of those that every call needs."""
    number = 0
    needed: set[str] = set()

    def node(depth, is_needed):
        nonlocal number
        kind = draw(st.sampled_from(["string", "integer", "enum", "object", "array"] if depth < 5 else ["string"]))
        if kind == "enum":
            return {"enum": draw(st.lists(st.text("abc", min_size=1), min_size=1, max_size=20))}
        if kind not in ("object", "array"):
            return {"type": kind, "description": draw(st.text(max_size=40))}
        properties, required = {}, []
        for _ in range(draw(st.integers(0, 4))):
            number += 1
            name = f"n{number}"
            if draw(st.booleans()):
                required.append(name)
                needed.update({name} if is_needed else ())
            properties[name] = node(depth + 1, is_needed and name in required)
        fields = {"type": "object", "properties": properties, "required": required}
        return fields if kind == "object" or not depth else {"type": "array", "items": fields}

    schema = node(0, True)
    return {"name": "f", "description": draw(st.text(max_size=300)), "inputSchema": schema}, needed


def names_in(text, names):
    return {name for name in names if re.search(rf"\b{name}\b", text)}


@given(nested_tools(), st.integers(5, 150), st.integers(1, 150))
def test_more_room_never_shows_fewer_required_fields(drawn, budget, more):
    tool, needed = drawn
    narrow = tool_text.signature_and_summary(tool, "f", "", budget)
    wide = tool_text.signature_and_summary(tool, "f", "", budget + more)
    assert tokens.count(narrow) <= budget
    assert names_in(narrow, needed) <= names_in(wide, needed)


@given(nested_tools())
def test_every_required_field_is_shown_where_there_is_room(drawn):
    tool, needed = drawn
    assert names_in(tool_text.signature_and_summary(tool, "f", "", 5000), needed) == needed
    notes = tool_text.signature_with_notes(tool)
    assert tokens.count(notes) <= tool_text.NOTES_TOKENS
    if names_in(tool_text.signature_and_summary(tool, "f", "", tool_text.NOTES_TOKENS - 30), needed) == needed:
        assert names_in(notes, needed) == needed


def test_the_required_parameters_of_every_real_tool_are_in_its_notes(shared):
    for file in sorted((shared / "corpus" / "mcp_tools").glob("*.json")):
        for tool in json.loads(file.read_text())["tools"]:
            text = tool_text.signature_with_notes(tool)
            assert tokens.count(text) <= tool_text.NOTES_TOKENS
            for name in tool["inputSchema"].get("required", ()):
                assert re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", text), (tool["name"], name)


def descriptions(node):
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "description" and isinstance(value, str):
                yield value
            else:
                yield from descriptions(value)
    elif isinstance(node, list):
        for value in node:
            yield from descriptions(value)


def choices(node):
    if isinstance(node, dict):
        if isinstance(node.get("enum"), list):
            yield from node["enum"]
        for name, value in node.items():
            if name not in ("enum", "default", "examples"):
                yield from choices(value)
    elif isinstance(node, list):
        for value in node:
            yield from choices(value)


def test_nothing_of_a_real_definition_is_left_out(shared):
    """Every word of every description, every parameter's name and every choice stands in the whole text."""
    seen = 0
    for file in sorted((shared / "corpus" / "mcp_tools").glob("*.json")):
        for tool in json.loads(file.read_text())["tools"]:
            text = " ".join(tool_text.full_text(tool).split())
            schema = tool["inputSchema"]
            reachable = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
            for described in (tool.get("description", ""), *descriptions(reachable.get("properties", {}))):
                assert " ".join(clean(described).split()) in text, (tool["name"], described)
            for choice in choices(reachable.get("properties", {})):
                assert " ".join(json.dumps(choice, ensure_ascii=False).split()) in text, (tool["name"], choice)
            for name in schema.get("properties", {}):
                assert re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", text), (tool["name"], name)
            seen += 1
    assert seen > 1000


@given(st.text())
def test_a_summary_fits_on_its_line(text):
    made = prose.summary(text)
    assert prose.utf16_length(made) <= prose.SUMMARY_CHARS
    assert "\n" not in made


@pytest.mark.parametrize(
    ("text", "limit", "cut"),
    [
        ("Short.", 60, "Short."),
        ("First sentence. Second one that is longer.", 20, "First sentence."),
        ("Uses e.g. Redis here. Then more.", 25, "Uses e.g. Redis here."),
        ("One. Two. Three is too long for it", 12, "One. Two."),
        ("Words that go on and on without an end", 20, "Words that go on…"),
        ("A list:\n- one\n- two and much more of it", 20, "A list: - one"),
        ("To do. Options are:\n- 'add': adds a row", 24, "To do. Options are…"),
        ("hidden\u202e text\u200b", 60, "hidden text"),
    ],
)
def test_texts_are_cut_where_a_reader_would_stop(text, limit, cut):
    assert prose.cut(text, limit) == cut


@pytest.mark.parametrize("wide", ["a" + "\n" * 50_000 + "b", "a" + " " * 100_000 + "b", "a. " * 50_000])
def test_wide_texts_are_cut_all_the_same(wide):
    # It took 20 s where every end was looked at from the start.
    assert len(prose.cut(wide, 60)) <= 60
    assert len(prose.summary(wide)) <= 60
    assert prose.drop_blank_lines(wide).split() == wide.split()


def _doubling(levels: int, keyword: str) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        f"d{level}": {keyword: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    return {"$defs": {**definitions, f"d{levels}": {}}, "properties": {"x": {"$ref": "#/$defs/d0"}}}


_HOSTILE: dict[str, dict[str, Any]] = {
    "doubling allOf": _doubling(40, "allOf"),
    "doubling anyOf": _doubling(40, "anyOf"),
    "many fields": {"properties": {f"p{number}": {"type": "string"} for number in range(20_000)}},
    "many alternatives": {"properties": {"x": {"anyOf": [{"properties": {f"p{n}": {}}} for n in range(20_000)]}}},
    "long references": {"properties": {f"p{number}": {"$ref": "#" + "/a" * 10_000} for number in range(100)}},
    "nested alternatives": {
        "$defs": {"u": {"anyOf": [{"properties": {f"f{number}": {"$ref": "#/$defs/u"}}} for number in range(300)]}},
        "properties": {f"p{number}": {"$ref": "#/$defs/u"} for number in range(50)},
    },
}


@pytest.mark.parametrize("name", _HOSTILE)
@pytest.mark.parametrize(
    "write",
    [
        tool_text.signature_line,
        tool_text.signature_with_notes,
        tool_text.full_text,
        lambda tool: tool_text.part_text(tool["inputSchema"], {"$ref": "#/properties/x"}),
        lambda tool: deepest_names(tool["inputSchema"], "x.a.b"),
    ],
    ids=["line", "notes", "full", "part", "names"],
)
def test_a_schema_of_any_size_takes_bounded_work_to_write(name, write):
    tool = {"name": "t", "inputSchema": _HOSTILE[name]}
    assert count_calls(lambda: write(tool)) < 1_000_000


def test_what_a_text_leaves_out_of_too_many_fields_is_told():
    fields = {f"p{number}": {"type": "string"} for number in range(20_000)}
    assert tool_text.full_text({"name": "t", "inputSchema": {"properties": fields}}).endswith("…)")


@pytest.mark.parametrize("long", [{"x" * 4_000_000: {}}, {"x": {"enum": ["y" * 4_000_000]}}])
def test_long_names_and_choices_are_left_out_of_a_line(long):
    line = tool_text.signature_line({"name": "t", "inputSchema": {"properties": long}})
    assert len(line) < 100
