"""Rules of hosts about tools: which tools of which server they concern."""

import fnmatch
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.hosts.hosts import Machine
from deltamcp.hosts.movable_servers import denied_tools, find_rules, match_claude_rule


@pytest.mark.parametrize(
    ("rule", "server", "tools"),
    [
        ("mcp__github", "github", ("*",)),
        ("mcp__github__*", "github", ("*",)),
        ("mcp__github__delete-repo", "github", ("delete-repo",)),
        ("mcp__github__delete_repo", "github", ("delete[_./]repo",)),
        ("mcp__github__delete_*", "github", ("delete[_./]*",)),
        ("mcp__github", "github-two", ()),
        ("mcp__github__x", "git", ()),
        ("mcp__my_server__x", "my server", ("x",)),
        ("mcp__*", "any", ("*",)),
        ("mcp__*__delete", "any", ("*[_./][_./]delete", "[_./]delete", "delete")),
        ("Bash(mcp__github)", "github", ()),
        ("*", "github", ()),
    ],
)
def test_a_rule_of_claude_code_matches_tools(rule, server, tools):
    assert match_claude_rule(rule, server) == tools


def test_a_rule_finds_a_tool_whose_name_claude_code_changed():
    (glob,) = match_claude_rule("mcp__s__files_delete_all", "s")
    assert all(fnmatch.fnmatchcase(name, glob) for name in ("files_delete_all", "files.delete_all", "files/delete/all"))
    assert not fnmatch.fnmatchcase("files-delete-all", glob)


names = st.text("ab_-*", min_size=1, max_size=6)


@given(names, st.text("ab-", min_size=1, max_size=4), st.text("ab_-", min_size=1, max_size=6))
def test_what_a_rule_matches_by_its_whole_name_its_globs_match(pattern, server, tool):
    rule = f"mcp__{pattern}"
    globs = match_claude_rule(rule, server)
    if fnmatch.fnmatchcase(f"mcp__{server}__{tool}", rule):
        assert any(fnmatch.fnmatchcase(tool, glob) for glob in globs)
    for glob in globs:
        is_whole_server = rule == f"mcp__{server}"
        if fnmatch.fnmatchcase(tool, glob) and not is_whole_server:
            assert fnmatch.fnmatchcase(f"mcp__{server}__{tool}", rule)


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "project").mkdir()
    return Machine(tmp_path, tmp_path / "project", "linux", {})


def write(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_the_settings_of_the_user_of_this_project_and_of_all_known_ones_count(machine):
    home, other = machine.home, machine.home / "other"
    for folder, tool in ((home, "a"), (machine.cwd, "b"), (other, "c")):
        write(folder / ".claude" / "settings.json", {"permissions": {"deny": [f"mcp__s__{tool}"]}})
    write(machine.cwd / ".claude" / "settings.local.json", '{ // mine\n"permissions": {"deny": ["mcp__s__d"],}}')
    document = {"projects": {str(other): {"allowedTools": ["mcp__s__e"], "disabledMcpServers": ["s"]}}}
    rules = find_rules("Claude Code", machine, document, home / ".claude.json", ["s"])
    assert set(denied_tools(rules, "s")) == {"a", "b", "c", "d"}
    assert {(rule.effect, rule.text) for rule in rules if rule.effect != "deny"} == {
        ("allow", "mcp__s__e"),
        ("list", f"disabledMcpServers of {other}"),
    }


def test_the_folder_that_a_variable_names_counts(machine, tmp_path):
    write(tmp_path / "elsewhere" / "settings.json", {"permissions": {"deny": ["mcp__s__a"]}})
    moved = machine._replace(environment={"CLAUDE_CONFIG_DIR": str(tmp_path / "elsewhere")})
    assert denied_tools(find_rules("Claude Code", moved, {}, tmp_path, ["s"]), "s") == ("a",)


@pytest.mark.parametrize(
    "settings", ["", "[]", "{ nonsense", {"permissions": 1}, {"permissions": {"deny": [1, None]}}, {"hooks": {"a": 1}}]
)
def test_settings_that_the_host_cannot_read_have_no_rules(settings, machine):
    write(machine.home / ".claude" / "settings.json", settings)
    assert find_rules("Claude Code", machine, [], machine.home, ["s"]) == []


def test_rules_of_cursor(machine):
    write(
        machine.home / ".cursor" / "cli-config.json",
        {"permissions": {"deny": ["Mcp(s:rm*)", "Mcp(s, ls)", "Shell(x)"]}},
    )
    write(machine.cwd / ".cursor" / "cli.json", {"permissions": {"allow": ["Mcp(*:get)", "Mcp(other:get)"]}})
    write(machine.cwd / ".cursor" / "permissions.json", {"mcpAllowlist": ["s:read", "t:*"]})
    rules = find_rules("Cursor", machine, {}, machine.home, ["s"])
    assert [(rule.effect, rule.tools) for rule in rules] == [
        ("deny", ("rm*",)),
        ("deny", ("ls",)),
        ("allow", ("get",)),
        ("allow", ("read",)),
    ]


@pytest.mark.parametrize(
    ("host", "document", "text"),
    [
        ("Gemini CLI", {"mcp": {"allowed": ["s", "t"]}}, "mcp.allowed"),
        ("Amazon Q", {"tools": ["@s", "@t", "fs_read"]}, "@s in tools"),
        (
            "Zed",
            {"agent": {"profiles": {"ask": {"context_servers": {"s": {"tools": {"x": True}}}}}}},
            "agent.profiles.ask.context_servers",
        ),
    ],
)
def test_lists_that_name_a_server_are_found(host, document, text, machine):
    assert [(rule.effect, rule.text) for rule in find_rules(host, machine, document, machine.home, ["s"])] == [
        ("list", text)
    ]


def test_servers_that_the_user_has_switched_off_are_denied_whole(machine):
    path = machine.cwd / ".mcp.json"
    write(machine.home / ".claude.json", {"projects": {str(machine.cwd): {"disabledMcpjsonServers": ["s"]}}})
    write(machine.cwd / ".claude" / "settings.local.json", {"disabledMcpjsonServers": ["t", "other"]})
    rules = find_rules("Claude Code", machine, {}, path, ["s", "t", "u"])
    assert [denied_tools(rules, server) for server in "stu"] == [("*",), ("*",), ()]
    rules = find_rules("Gemini CLI", machine, {"mcp": {"excluded": ["s"]}}, path, ["s", "t"])
    assert [denied_tools(rules, server) for server in "st"] == [("*",), ()]
