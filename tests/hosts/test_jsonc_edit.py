"""Edits of JSON texts: the value is the expected one, and what is outside the edited members stays as it was."""

import contextlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.errors import ConfigurationError
from deltamcp.hosts import jsonc_edit
from tests.support.strategies import any_json

NEW = {"command": "/bin/delta-mcp", "args": ["gateway", "x"]}

# Texts as people and programs write them, with the comments, spaces and commas that nobody expects.

blanks = st.text(" \t", max_size=3)
line_ends = st.sampled_from(["\n", "\r\n"])
comments = st.sampled_from(["", "", "", '/* } , " */', "/**/", '// { a: 1, "\n', "//\r\n", "/* two\nlines */"])


@st.composite
def gaps(draw):
    return draw(blanks) + draw(comments) + draw(st.sampled_from(["", "", " ", "\n  ", "\r\n\t", "\n\n"]))


@st.composite
def object_texts(draw, names, value):
    """Draws the text of an object with these names and values, and comments everywhere."""
    parts = [draw(gaps())]
    for index, name in enumerate(names):
        written = json.dumps(value(name), ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 2])))
        parts += [json.dumps(name), draw(gaps()), ":", draw(gaps()), written, draw(gaps())]
        parts.append("," if index < len(names) - 1 or draw(st.booleans()) else "")
        parts.append(draw(gaps()))
    return "{" + "".join(parts) + "}"


@st.composite
def documents(draw):
    names = draw(st.lists(st.text(max_size=5), max_size=5, unique=True))
    values = {name: draw(any_json) for name in names}
    inner = draw(object_texts(names, values.get))
    before, after = draw(gaps()), draw(gaps())
    start = draw(st.sampled_from(["", "\ufeff", "// top\n"]))
    text = f'{start}{{{before}"other": [1, 2], "servers": {inner}{after}}}{draw(gaps())}'
    return text, values, draw(st.lists(st.sampled_from(names), unique=True)) if names else []


def comments_in(text: str) -> list[str]:
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', text, re.DOTALL)
    return [token.rstrip("\r") for token in tokens if token.startswith("/")]


@given(documents(), st.integers(0, 2), st.integers(0, 2))
def test_an_edit_gives_the_expected_value_and_keeps_what_is_around_it(drawn, new_count, added_count):
    text, values, chosen = drawn
    new = {f"new {index}": {"n": index} for index in range(new_count)} if chosen else {}
    added = {f"added {index}": {"n": index} for index in range(added_count)}
    first = [jsonc_edit.make_member(name, value, text, ["servers"]) for name, value in new.items()]
    last = [jsonc_edit.make_member(name, value, text, ["servers"]) for name, value in added.items()]
    replaced = {name: first if index == 0 else [] for index, name in enumerate(chosen)}
    edited = jsonc_edit.edit_members(text, ["servers"], replaced, last)

    kept = {name: value for name, value in values.items() if name not in chosen}
    assert jsonc_edit.parse(edited) == {"other": [1, 2], "servers": kept | new | added}
    place = jsonc_edit.find_object(text, ["servers"])
    assert place is not None
    outside, at = "", 0
    for member in place.members:
        if member.name in chosen:
            outside += text[at : member.start]
            at = member.end
    assert comments_in(edited) == comments_in(outside + text[at:])
    assert edited.startswith(text[: place.start + 1])
    assert edited.endswith(text[place.end :])
    texts = jsonc_edit.member_texts(edited, ["servers"])
    assert all(
        texts[name] == written for name, written in jsonc_edit.member_texts(text, ["servers"]).items() if name in kept
    )
    if not (chosen or added):
        assert edited == text


@given(documents())
def test_members_that_come_back_in_place_of_one_keep_their_texts(drawn):
    text, _, chosen = drawn
    if not chosen:
        return
    texts = jsonc_edit.member_texts(text, ["servers"])
    entry = jsonc_edit.make_member("delta", NEW, text, ["servers"])
    edited = jsonc_edit.edit_members(text, ["servers"], {name: [entry] if name == chosen[0] else [] for name in chosen})
    back = jsonc_edit.edit_members(edited, ["servers"], {"delta": [texts[name] for name in chosen]})
    assert jsonc_edit.parse(back) == jsonc_edit.parse(text)
    assert jsonc_edit.member_texts(back, ["servers"]) == texts


@given(any_json, st.lists(st.text(max_size=4), max_size=3), st.sampled_from([None, 2, "\t"]))
def test_objects_that_are_missing_are_made(value, path, indent):
    text = json.dumps({"kept": value}, indent=indent)
    try:
        edited = jsonc_edit.edit_members(text, path, {}, [jsonc_edit.make_member("new", 1, text, path)])
    except ConfigurationError:
        assert path[0] == "kept"
        return
    parsed = jsonc_edit.parse(edited)
    for name in path:
        parsed = parsed[name]
    assert parsed["new"] == 1
    assert "\n" in edited or indent is None


@given(st.text(max_size=60) | st.text('{}[],:"/* \n\\ab1', max_size=60))
def test_no_text_breaks_the_editor_or_takes_long(text):
    with contextlib.suppress(ConfigurationError):
        jsonc_edit.edit_members(text, ["a"], {"b": []}, ['"c": 1'])


# The layouts that hosts write.


def edited(text: str) -> str:
    """Replaces `a` by a new entry and removes `b`."""
    entry = jsonc_edit.make_member("delta", NEW, text, ["mcpServers"])
    return jsonc_edit.edit_members(text, ["mcpServers"], {"a": [entry], "b": []})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            '{\n  "mcpServers": {\n    "a": {\n      "command": "x"\n    },\n    "b": {}\n  },\n  "z": 1\n}\n',
            '{\n  "mcpServers": {\n    "delta": {\n      "command": "/bin/delta-mcp",\n      "args": [\n'
            '        "gateway",\n        "x"\n      ]\n    }\n  },\n  "z": 1\n}\n',
            id="two spaces",
        ),
        pytest.param(
            '{\r\n\t"mcpServers": {\r\n\t\t"b": 1, // one\r\n\t\t"c": 3,\r\n\t\t"a": 2,\r\n\t},\r\n}',
            '{\r\n\t"mcpServers": {\r\n\t\t// one\r\n\t\t"c": 3,\r\n\t\t"delta": {\r\n'
            '\t\t\t"command": "/bin/delta-mcp",\r\n'
            '\t\t\t"args": [\r\n\t\t\t\t"gateway",\r\n\t\t\t\t"x"\r\n\t\t\t]\r\n\t\t},\r\n\t},\r\n}',
            id="tabs, CRLF, trailing commas and a comment",
        ),
        pytest.param(
            '{"mcpServers":{"a":{},"b":{}},"z":1}',
            '{"mcpServers":{"delta": {"command": "/bin/delta-mcp", "args": ["gateway", "x"]}},"z":1}',
            id="one line",
        ),
    ],
)
def test_the_layout_of_the_file_is_kept(text, expected):
    assert edited(text) == expected


def test_members_go_into_an_empty_file():
    text = jsonc_edit.edit_members("", ["mcpServers"], {}, ['"a": {}'])
    assert text == '{\n  "mcpServers": {\n    "a": {}\n  }\n}\n'


def test_a_member_is_not_added_into_a_comment():
    text = '{"s": { "a": 1 // the end\n}}'
    assert jsonc_edit.parse(jsonc_edit.edit_members(text, ["s"], {}, ['"b": 2'])) == {"s": {"a": 1, "b": 2}}


def test_names_that_stand_twice_are_told():
    assert jsonc_edit.repeated_names('{"s": {"a": 1, "b": 2, "a": 3}}', ["s"]) == {"a"}


@pytest.mark.parametrize("text", ['{"a" 1}', '{"a": 1 "b": 2}', "{a: 1}", '{"a": [1, {}', '{"a": }', "[1]"])
def test_what_is_no_object_is_told(text):
    with pytest.raises(ConfigurationError):
        jsonc_edit.edit_members(text, ["x"], {}, ['"b": 2'])
