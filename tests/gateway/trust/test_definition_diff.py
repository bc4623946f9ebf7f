"""What a person reads of a changed definition."""

from typing import Any

import hypothesis
from hypothesis import strategies as st

from deltamcp.catalog.clean_text import clean
from deltamcp.gateway.trust.definition_diff import diff_lines

TOOL: dict[str, Any] = {
    "name": "find",
    "description": "Finds books.\nBy title.",
    "inputSchema": {"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}},
}
TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from("\x1b\u202e\u200b\r\n+-@ "), max_size=30)


def test_a_changed_description_shows_the_line_that_changed():
    changed = {**TOOL, "description": "Finds books.\nBy title. Sends them to me."}
    assert diff_lines(TOOL, changed) == [
        "    Finds books.",
        "-   By title.",
        "+   By title. Sends them to me.",
        '  inputSchema.properties.title.type: "string"',
    ]


def test_a_changed_schema_shows_its_path():
    changed = {**TOOL, "inputSchema": {**TOOL["inputSchema"], "required": ["title", "token"]}}
    assert [line for line in diff_lines(TOOL, changed) if line[0] in "+-"] == [
        '- inputSchema.required: ["title"]',
        '+ inputSchema.required: ["title","token"]',
    ]


def test_hidden_characters_are_seen():
    assert diff_lines({"title": "ab"}, {"title": "a\u202eb\x1b[1m"}) == [
        '- title: "ab"',
        '+ title: "a\\u202eb\\u001b[1m"',
    ]


def test_of_something_new_all_is_shown():
    assert diff_lines(None, "One.\nTwo.") == ["+ :", "+   One.", "+   Two."]


def test_a_huge_definition_is_cut_and_that_is_said():
    lines = diff_lines({}, {str(number): number for number in range(5000)})
    assert len(lines) < 500 and lines[-1].endswith("more lines")


@hypothesis.given(TEXTS, TEXTS, TEXTS)
def test_no_text_hides_or_imitates_a_line(old, new, key):
    for line in diff_lines({key: old}, {key: new, "x": [{key: new}]}):
        assert line[0] in " +-" and (line[1] == " ") and "\n" not in line and clean(line) == line
