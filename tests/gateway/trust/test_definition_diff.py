"""What a person reads of a changed definition."""

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from deltamcp.catalog.text.clean_text import clean
from deltamcp.gateway.trust.definition import UnreadableDiffError, _parts, diff_lines

TOOL: dict[str, Any] = {
    "name": "find",
    "description": "Finds books.\nBy title.",
    "inputSchema": {"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}},
}
TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from("\x1b\u202e\u200b\r\n\x0b\x85\u2028+-@ "), max_size=90)
KEYS = st.text(st.sampled_from('ab."[]0\n '), max_size=4)


def test_a_changed_description_shows_the_line_that_changed():
    changed = {**TOOL, "description": "Finds books.\nBy title. Sends them to me."}
    assert diff_lines(TOOL, changed) == [
        "  description:",
        "    | Finds books.",
        "-   | By title.",
        "+   | By title. Sends them to me.",
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
    assert diff_lines(None, "One.\nTwo.") == ["+ :", "+   | One.", "+   | Two."]


def test_a_difference_that_nobody_reads_is_none():
    assert len(diff_lines(None, {str(number): number for number in range(5000)})) == 5000
    with pytest.raises(UnreadableDiffError, match="cannot be approved"):
        diff_lines(None, {str(number): number for number in range(20_000)})


@hypothesis.given(KEYS, KEYS, st.integers(0, 3), st.integers(0, 3))
def test_every_value_that_differs_is_seen_whatever_its_key(outer, inner, old, new):
    """A key with a dot in it is not taken for two keys."""
    before = {outer: {inner: old}, f"{outer}.{inner}": old}
    after = {outer: {inner: new}, f"{outer}.{inner}": new}
    changed = sum(line.startswith("+") for line in diff_lines(before, after))
    assert changed == (0 if old == new else 2)


@hypothesis.given(TEXTS, TEXTS, TEXTS)
def test_no_text_hides_or_imitates_a_line(old, new, key):
    for line in diff_lines({key: old}, {key: new, "x": [{key: new}]}):
        assert line[0] in " +-" and (line[1] == " ") and clean(line) == line
        assert len(line.splitlines()) == 1 and len(line) <= 80


@hypothesis.given(st.text(max_size=300))
def test_the_parts_of_a_line_are_the_line(line):
    assert "".join(_parts(line)) == line
