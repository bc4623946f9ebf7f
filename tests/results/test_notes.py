"""Notes below a text: one block for the model, and programs find the text again."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamcp import Text, ToolResult
from deltamcp.client.reply import Reply
from deltamcp.results.blocks import add_notes
from deltamcp.results.policy import META_KEY
from deltamcp.values import Image
from tests.support.properties import examples

NOTE = "[1-2 of 9 rows]"


@settings(max_examples=examples(200))
@given(st.text(), st.lists(st.text(min_size=1), max_size=3), st.text(min_size=1))
def test_a_program_finds_the_text_and_each_note(text, notes, later):
    reply = ToolResult([Text(text)], meta={"mine": 1, META_KEY: {"form": "text", "unit": "characters"}})
    noted = add_notes(add_notes(reply, notes), [later])
    assert len(noted.content) == 1 and noted.meta is not None and noted.meta["mine"] == 1
    assert Reply.of(noted).texts == [text, *notes, later]
    assert Reply.of(noted).text.strip("\n") == noted.content[0].text.strip("\n")  # type: ignore[union-attr]
    assert Reply.of(noted).value == text


@pytest.mark.parametrize(
    ("text", "meta", "blocks"),
    [
        ('{"a":1}', {}, 2),
        ('{"a":1}', {"form": "json", "handle": "R1"}, 2),
        ('{"a":1}', {"form": "json", "handle": "R1", "unit": "whole"}, 2),
        ("7", {"form": "json"}, 2),
        ("7", {}, 1),
        ("#a\n1", {"form": "table", "handle": "R1"}, 1),
        ("[x", {"form": "text"}, 1),
        ('[{"a":1}]', {"form": "json", "handle": "R1", "unit": "rows"}, 1),
        ('{"a":"… +9 chars"}', {"form": "json", "handle": "R1", "unit": "whole", "cuts": ["/a"]}, 1),
    ],
)
def test_only_a_whole_json_value_is_a_block_of_its_own(text, meta, blocks):
    noted = add_notes(ToolResult([Text(text)], meta={META_KEY: meta}), [NOTE])
    assert len(noted.content) == blocks and Reply.of(noted).texts == [text, NOTE]


def test_several_texts_stay_as_they_are():
    noted = add_notes(ToolResult([Text("a"), Image(b"", "image/png"), Text("b")]), [NOTE])
    assert Reply.of(noted).texts == ["a", "b", NOTE] and len(noted.content) == 4


@pytest.mark.parametrize("text", ['{"a":[1]}', "[draft] not JSON"])
def test_notes_in_blocks_of_their_own_are_no_part_of_the_value(text):
    noted = add_notes(add_notes(ToolResult([Text(text)]), [NOTE]), [NOTE, NOTE])
    assert len(noted.content) == 4
    assert Reply.of(noted).value == Reply.of(ToolResult([Text(text)])).value
    several = ToolResult([Text("a"), Image(b"", "image/png"), Text("b")])
    assert Reply.of(add_notes(several, [NOTE])).value == Reply.of(several).value


def test_notes_do_not_hide_that_a_reply_is_a_part():
    part = ToolResult([Text("a"), Text("b")], meta={META_KEY: {"handle": "R1"}})
    assert Reply.of(part).is_part and Reply.of(add_notes(part, [NOTE])).is_part


@pytest.mark.parametrize("count", [-1, 9, "1"])
def test_a_count_of_notes_that_cannot_be_right_raises_nothing(count):
    raw = {"content": [{"type": "text", "text": "a"}], "_meta": {META_KEY: {"notes": count}}}
    assert Reply(raw).value in ("a", None)
