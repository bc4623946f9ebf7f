"""Edits of TOML texts: the value is the expected one, and what is outside the edited tables stays as it was."""

import tomllib

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.errors import ConfigurationError
from deltamcp.hosts import toml_edit

CODEX = '''\
# Codex
model = "gpt-5-codex" # the model
notify = [
  "python3",
  # [mcp_servers.comment]
  [ "[mcp_servers.array]" ],
]
text = """
[mcp_servers.text]
"""

[mcp_servers.context7]
command = "npx"
args = ["-y", "@upstash/context7-mcp"] # yes

# Its environment
[mcp_servers.context7.env]
KEY = "x"

# About the screen
[tui]
notifications = true

[mcp_servers."we ird"]  # odd
url = 'https://example.com/[mcp]'

[[hooks]]
name = "a"

[mcp_servers.context7.tools.search]
approval_mode = "approve"

[projects."/home/u/x"]
trust_level = "trusted"
'''
TEXTS = [CODEX, CODEX.replace("\n", "\r\n"), "\ufeff" + CODEX, CODEX.rstrip()]
PATH = ["mcp_servers"]
ENTRY = {"command": "/bin/delta-mcp", "args": ["gateway", "C:\\x.toml"], "env": {"A": "b"}}


@pytest.mark.parametrize("text", TEXTS)
def test_tables_are_found_where_their_headers_are(text):
    texts = toml_edit.member_texts(text, PATH)
    assert list(texts) == ["context7", "we ird"]
    for name, written in texts.items():
        assert tomllib.loads(written)["mcp_servers"][name] == toml_edit.parse(text)["mcp_servers"][name]
    assert "# Its environment" in texts["context7"]
    assert "# About the screen" not in texts["context7"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_table_takes_the_place_of_two_and_they_come_back(text):
    texts = toml_edit.member_texts(text, PATH)
    entry = toml_edit.make_member("delta-mcp", ENTRY, text, PATH)
    edited = toml_edit.edit_members(text, PATH, {"context7": [entry], "we ird": []})
    expected = toml_edit.parse(text) | {"mcp_servers": {"delta-mcp": ENTRY}}
    assert toml_edit.parse(edited) == expected
    assert "# About the screen" in edited and "# Its environment" not in edited
    assert ("\r\n" in text) == ("\r\n" in edited) and ("\r\n" in text) != ("\n" in edited.replace("\r\n", ""))
    assert edited.startswith(text[: text.index("[mcp_servers.context7]")])
    back = toml_edit.edit_members(edited, PATH, {"delta-mcp": list(texts.values())})
    assert toml_edit.parse(back) == toml_edit.parse(text)
    assert toml_edit.member_texts(back, PATH) == texts


names = st.text(max_size=6) | st.sampled_from(["a", "a-b", "mcp_servers"])
tables = st.dictionaries(
    names,
    st.text(max_size=8) | st.integers(-9, 9) | st.booleans() | st.lists(st.text(max_size=4), max_size=3),
    max_size=3,
)


@given(
    st.dictionaries(names, tables | st.dictionaries(names, tables, max_size=2), max_size=4),
    st.dictionaries(names, tables, max_size=3),
    st.lists(names, max_size=2, unique=True),
    st.sampled_from(["\n", "\r\n"]),
    st.data(),
)
def test_an_edit_gives_the_expected_value(servers, others, added, line_end, data):
    document = {**{f"x{name}": table for name, table in others.items()}, "mcp_servers": servers}
    text = tomlkit.dumps(document).replace("\r\n", "\n").replace("\n", line_end)
    document = toml_edit.parse(text)
    found = toml_edit.member_texts(text, PATH)
    chosen = data.draw(st.lists(st.sampled_from(sorted(found)), unique=True)) if found else []
    new = {f"new {name}": ENTRY for name in added}
    first = [toml_edit.make_member(name, value, text, PATH) for name, value in new.items()]
    replaced = {name: first if not index else [] for index, name in enumerate(chosen)}
    edited = toml_edit.edit_members(text, PATH, replaced, [] if chosen else first)
    kept = {name: value for name, value in document["mcp_servers"].items() if name not in chosen}
    expected = document | {"mcp_servers": kept | new}
    parsed = toml_edit.parse(edited)
    assert {"mcp_servers": {}} | parsed == expected
    texts = toml_edit.member_texts(edited, PATH)
    assert all(texts[name] == written for name, written in found.items() if name not in chosen)
    if not chosen and not new:
        assert edited == text


def test_tables_go_to_the_end_of_a_text_and_into_an_empty_one():
    entry = toml_edit.make_member("a", {"command": "x"}, "", PATH)
    assert toml_edit.edit_members("", PATH, {}, [entry]) == '[mcp_servers.a]\ncommand = "x"\n'
    assert toml_edit.edit_members("b = 1", PATH, {}, [entry]) == 'b = 1\n\n[mcp_servers.a]\ncommand = "x"\n'


def test_what_is_no_toml_is_told():
    with pytest.raises(ConfigurationError, match="not TOML"):
        toml_edit.parse("a = ")
