"""The audit: what it counts, how it reports servers that fail, and that it reports no secrets."""

import argparse
import asyncio
import datetime
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp import tokens
from deltamcp.cli.terminal import report_pages
from deltamcp.cli.verbs import audit, install
from deltamcp.costs import audit as server_audit
from deltamcp.costs import cost
from deltamcp.costs.audit import AuditReport, ServerAnswer
from deltamcp.costs.cost import ServerListing
from deltamcp.errors import ConfigurationError
from deltamcp.hosts import files
from deltamcp.hosts.files import ConfiguredServer
from tests.support.html_page import Page
from tests.support.strategies import any_json, any_schema

SCHEMA = {"type": "object", "properties": {"query": {"type": "string", "description": "What is looked for."}}}
TOOLS = [
    {"name": f"tool_{n}", "description": "Does one of many things. " * n, "inputSchema": SCHEMA} for n in range(1, 30)
]


def found(name: str, host: str = "Cursor", skipped: str | None = None, **entry: object) -> ConfiguredServer:
    entry = entry or {"command": "npx", "args": [name], "env": {}}
    return ConfiguredServer(name, host, Path("/home/of/mcp.json"), entry, skipped)


async def many(entry: dict[str, Any]) -> ServerAnswer:
    return ServerAnswer(TOOLS, "Look before you write.")


def audited(
    *servers: ConfiguredServer, look=many, seconds: float = 5, model: str | float = "o200k", words: tuple[str, ...] = ()
) -> AuditReport:
    return asyncio.run(server_audit.audit(servers, look, seconds, model=model, words=words))


# Counting


def test_a_tool_costs_what_a_host_sends_of_it():
    tool = {**TOOLS[0], "title": "Not sent", "outputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}
    counted = cost.count_costs([ServerListing("s", [tool], "Some words.")])
    sent = {"name": tool["name"], "description": tool["description"], "input_schema": SCHEMA}
    assert counted.tools[0].now == counted.together.now == tokens.count(msgspec.json.encode(sent).decode())
    assert counted.together.instructions == tokens.count("Some words.")


def test_behind_the_gateway_servers_share_five_tools():
    listings = [ServerListing(name, TOOLS) for name in ("one", "two", "index", "ünïcode name", "")]
    counted = cost.count_costs(listings)
    together = counted.together
    assert together.tools == 5 * len(TOOLS) and together.now == sum(one.now for one in counted.servers.values())
    assert together.surface <= 410 and all(one.surface <= 410 for one in counted.servers.values())
    assert together.one_tool == together.surface + together.overview + together.schema
    assert counted.refused == {}
    assert [tool.now for tool in counted.tools] == sorted((tool.now for tool in counted.tools), reverse=True)


def test_a_tool_that_the_catalog_refuses_is_told_and_still_costs_now():
    counted = cost.count_costs([ServerListing("s", [TOOLS[0], TOOLS[0], {"description": "No name."}])])
    assert counted.together.tools == 3
    assert set(counted.refused) == {"s/tool_1", "s/None"}


def test_nothing_costs_nothing():
    assert cost.count_costs([]).together.now == 0
    assert cost.count_costs([ServerListing("s", [])]).servers["s"].now == 0


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["name", "description", "inputSchema", "x"]), any_json | any_schema), max_size=3
    )
)
def test_whatever_a_server_lists_is_counted(tools):
    assert cost.count_costs([ServerListing("s", tools)]).together.tools == len(tools)


@pytest.mark.parametrize("model", ["claude-opus-4-7", 2.0])
def test_a_models_own_tokens_are_counted(model):
    listing = ServerListing("s", TOOLS, "Some words.")
    counted, usual = cost.count_costs([listing], model), cost.count_costs([listing])
    for tool in counted.tools:
        definition = next(one for one in TOOLS if one["name"] == tool.name)
        sent = {"name": tool.name, "description": definition["description"], "input_schema": SCHEMA}
        assert tool.now == tokens.count(msgspec.json.encode(sent).decode(), model)
    assert counted.together.instructions == tokens.count("Some words.", model)
    for figure in ("now", "surface", "overview", "schema"):
        assert getattr(counted.together, figure) != getattr(usual.together, figure)


# Hosts


def test_a_host_pays_for_its_own_servers_and_a_shared_one_counts_in_each():
    async def look(entry):
        return ServerAnswer(TOOLS[: int(entry["args"][0])], "Words.")

    def place(host: str, tools: int) -> ConfiguredServer:
        return found(f"{tools} tools", host, command="npx", args=[str(tools)])

    servers = [place("Cursor", 5), place("Cursor", 9), place("Zed", 9), place("Zed", 20), place("Zed", 20)]
    report = audited(*servers, found("off", "Kiro", skipped="it is off"), look=look)
    assert [(host.host, host.servers, host.cost.tools) for host in report.hosts] == [
        ("Zed", ["9 tools", "20 tools"], 29),
        ("Cursor", ["5 tools", "9 tools"], 14),
    ]
    alone = audited(place("Cursor", 5), place("Cursor", 9), look=look)
    assert report.hosts[1].cost == alone.together, "as if the other hosts were not there"
    assert report.together.tools == 34, "each server once"


def test_a_host_whose_servers_all_fail_has_no_total():
    async def look(entry):
        raise ValueError

    assert audited(found("dead"), look=look).hosts == []


# What can be done


def test_the_next_steps_name_the_most_expensive_server_and_the_command():
    async def look(entry):
        return ServerAnswer(TOOLS if entry["args"] == ["large"] else TOOLS[:1])

    report = audited(found("small"), found("large"), look=look)
    costs = {server.name: server.cost.now for server in report.servers if server.cost}
    first, last = report.next_steps
    assert (
        f"large alone costs {costs['large']:,} of {sum(costs.values()):,} tokens (Cursor: /home/of/mcp.json)" in first
    )
    assert last == "Put those of Cursor behind the gateway: delta-mcp install cursor"


def test_a_named_file_is_served_and_every_host_is_installed():
    assert audited(found("a", "VS Code"), words=("my mcp.json",)).next_steps == [
        "Serve them through the gateway: delta-mcp gateway 'my mcp.json'"
    ]
    hosts = audited(found("a", "VS Code"), found("b", "Claude Code"), found("c", "Claude Code")).next_steps[1:]
    assert [sentence.partition(": ")[2] for sentence in hosts] == [
        "delta-mcp install claude-code",
        "delta-mcp install vscode",
    ]
    assert all(word.rpartition(" ")[2] in install.HOST_IDS for word in hosts)


def test_one_server_is_not_compared_with_itself():
    assert not any("alone" in sentence for sentence in audited(found("only")).next_steps)


def test_few_tools_need_nothing():
    async def look(entry):
        return ServerAnswer(TOOLS[:1])

    assert audited(found("small"), look=look).next_steps == [
        "Nothing needs to be done: these tools cost no more than meta-tools would."
    ]
    assert audited(found("off", skipped="it is off")).next_steps == []


# Asking


def test_one_dead_server_does_not_stop_the_rest():
    async def look(entry):
        if entry["command"] == "silent":
            await asyncio.sleep(60)
        if entry["command"] == "broken":
            raise ValueError
        if entry["command"] == "absent":
            raise ConfigurationError("There is no program 'absent';\ninstall it.")
        return ServerAnswer(TOOLS)

    servers = [
        found(name, command=f"/bin/{name}" if name == "good" else name)
        for name in ("silent", "broken", "absent", "good")
    ]
    report = audited(*servers, look=look, seconds=0.05)
    assert {server.name: server.problem for server in report.servers} == {
        "silent": "It did not answer within 0.05 seconds.",
        "broken": "ValueError.",
        "absent": "There is no program 'absent'; install it.",
        "good": None,
    }
    assert report.together.tools == len(TOOLS)


def test_a_server_in_several_files_is_asked_once_and_told_of_in_each():
    asked = []

    async def look(entry):
        asked.append(entry)
        return ServerAnswer(TOOLS)

    report = audited(found("same"), found("same", "Zed"), found("same", "VS Code", command="other"), look=look)
    assert len(asked) == 2
    assert [(server.name, server.places) for server in report.servers] == [
        ("same", ["Cursor: /home/of/mcp.json", "Zed: /home/of/mcp.json"]),
        ("same (VS Code)", ["VS Code: /home/of/mcp.json"]),
    ]


def test_no_more_than_four_are_started_at_a_time():
    running, most = 0, 0

    async def look(entry):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return ServerAnswer([])

    audited(*(found(f"s{n}") for n in range(20)), look=look)
    assert most == server_audit.MAX_CONCURRENT


def test_what_is_passed_over_is_not_asked():
    report = audited(found("needy", skipped="it needs the variable TOKEN, which is not set"))
    assert report.servers == []
    assert report.skipped[0].why == "it needs the variable TOKEN, which is not set"


# Secrets

SECRETS = (
    "s3cret-env",
    "s3cret-header",
    "s3cret-user",
    "s3cret-query",
    "s3cret-path",
    "s3cret-arg",
    "s3cret-option",
    "s3cret-word",
)
PROGRAM = {
    "command": "/opt/bin/npx",
    "args": ["--token", "s3cret-arg", "-y", "@scope/package", "--api-key=s3cret-option", "-H", "A: Bearer s3cret-word"],
    "env": {"TOKEN": "s3cret-env"},
}
ADDRESS = {
    "url": "https://me:s3cret-user@x.example/hooks/s3cret-path/mcp?key=s3cret-query",
    "headers": {"Authorization": "Bearer s3cret-header"},
}


def test_secrets_are_in_no_output(capsys, monkeypatch, tmp_path):
    async def telltale(entry, seconds):
        raise ConfigurationError(
            f"@scope/package broke with {json.dumps(entry)}, {entry.get('headers', entry.get('args'))}"
        )

    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"program": PROGRAM, "address": ADDRESS}}))
    monkeypatch.setattr(audit, "_ask_server", telltale)
    for flags in ([], ["--json"], ["--html", str(tmp_path / "page.html")]):
        with pytest.raises(SystemExit) as left:
            run(str(path), *flags)
        assert left.value.code == 1
    said = "".join(capsys.readouterr()) + (tmp_path / "page.html").read_text()
    assert not [secret for secret in SECRETS if secret in said]
    assert "npx" in said and "x.example" in said and "@scope/package" in said


def test_secrets_are_in_no_output_of_what_works(capsys, monkeypatch, tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"program": PROGRAM, "address": ADDRESS}}))
    monkeypatch.setattr(audit, "_ask_server", lambda entry, seconds: many(entry))
    for flags in ([], ["--json"], ["--html", str(tmp_path / "page.html")]):
        run(str(path), *flags)
    said = "".join(capsys.readouterr()) + (tmp_path / "page.html").read_text()
    assert not [secret for secret in SECRETS if secret in said]


# The command


def run(*words: str) -> None:
    parser = argparse.ArgumentParser()
    audit.set_up(parser)
    given = parser.parse_args(words)
    given.run(given)


@pytest.fixture
def config(tmp_path, monkeypatch):
    path = tmp_path / "mcp.json"
    servers = {
        "one": {"command": "one"},
        "two": {"url": "https://x.example/mcp"},
        "off": {"command": "x", "disabled": True},
    }
    path.write_text(json.dumps({"mcpServers": servers}))
    monkeypatch.setattr(audit, "_ask_server", lambda entry, seconds: many(entry))
    return str(path)


def test_the_table_has_servers_largest_tools_and_what_would_be(config, capsys):
    run(config)
    said = capsys.readouterr().out
    assert re.search(r"one +29 +[\d,]+ +\d+ +\d+ +\d", said)
    assert re.search(r"together +58 +[\d,]+ +\d+", said)
    assert re.search(r"tool_29 +one +[\d,]+ +\d+", said)
    assert "% less" in said and "off (" in said and files.DISABLED in said
    assert "Behind the gateway" in said
    assert "\x1b" not in said


def test_hosts_date_and_next_steps_are_in_the_table_the_json_and_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(audit, "_ask_server", lambda entry, seconds: many(entry))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.chdir(tmp_path)
    shared = {"command": "shared"}
    places = {
        ".claude.json": {"mcpServers": {"shared": shared}},
        ".cursor/mcp.json": {"mcpServers": {"shared": shared, "own": {"command": "own"}}},
    }
    for name, document in places.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(document))
    days = {datetime.datetime.now().astimezone().date().isoformat()}
    run("--html", "page.html")
    table = capsys.readouterr().out
    run("--json")
    report = json.loads(capsys.readouterr().out)
    days.add(datetime.datetime.now().astimezone().date().isoformat())
    page = Page((tmp_path / "page.html").read_text()).text

    assert report["date"] in days
    assert [(host["host"], host["servers"]) for host in report["hosts"]] == [
        ("Cursor", ["shared", "own"]),
        ("Claude Code", ["shared"]),
    ]
    assert len(report["next_steps"]) == 3
    assert any(day in table for day in days) and any(f"Measured on {day}." in page for day in days)
    for host in report["hosts"]:
        figures = [f"{host['cost'][key]:,}" for key in ("tools", "now", "surface", "one_tool")]
        assert re.search(rf"{host['host']} +{len(host['servers'])} +{' +'.join(figures)} ", table)
        assert "".join([host["host"], ", ".join(host["servers"]), *figures]) in page
    for sentence in report["next_steps"]:
        assert sentence in table and sentence in page


def test_one_host_has_no_table_of_hosts(config, capsys):
    run(config)
    assert "In each host" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("gpt-5", "o200k for gpt-5, exact"),
        ("gpt-4", "cl100k for gpt-4, exact"),
        ("anthropic/claude-opus-4-6", "o200k × 1.15 for anthropic/claude-opus-4-6"),
        ("1.3", "o200k × 1.3"),
        ("unheard-of", "o200k × 1.1 for unheard-of, a model that is not known here"),
    ],
)
def test_the_model_is_the_users(config, capsys, model, told):
    run(config, "--model", model, "--json")
    counted = json.loads(capsys.readouterr().out)
    run(config, "--json")
    usual = json.loads(capsys.readouterr().out)
    assert (counted["tokenizer"], usual["tokenizer"]) == (told, "o200k, exact")
    assert (counted["together"]["surface"] == usual["together"]["surface"]) == (model == "gpt-5")


@pytest.mark.parametrize("factor", ["0", "-1", "nan", "inf"])
def test_a_factor_that_is_none_is_refused(config, capsys, factor):
    with pytest.raises(SystemExit):
        run(config, f"--model={factor}")
    assert "a model's name, or a factor above 0" in capsys.readouterr().err


def test_json_has_all_of_it(config, capsys):
    run(config, "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["together"]["tools"] == 58 and len(report["tools"]) == 58
    assert {server["name"]: server["runs"] for server in report["servers"]} == {"one": "one", "two": "x.example"}
    assert report["skipped"][0]["name"] == "off"


def test_some_servers_only(config, capsys):
    run(config, "--only", "two", "--json")
    assert [server["name"] for server in json.loads(capsys.readouterr().out)["servers"]] == ["two"]
    with pytest.raises(ConfigurationError, match="No server is called 'tow'; there are off, one, two"):
        run(config, "--only", "tow")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--timeout", "0"], "--timeout takes seconds"),
        (["--html", "/no/such/folder/page.html"], "There is no folder /no/such/folder"),
    ],
)
def test_a_mistake_is_told_before_anything_is_started(config, flags, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        run(config, *flags)


def test_where_no_host_has_servers_a_file_is_asked_for(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        run()
    assert left.value.code == 1
    assert "delta-mcp audit CONFIG" in capsys.readouterr().out


def test_names_do_not_steer_the_terminal(capsys):
    async def look(entry):
        return ServerAnswer([{"name": "\x1b[2J\u202etool [red]x[/red]", "inputSchema": {}}])

    audit._print_report(audited(found("\x1b]0;evil\x07"), look=look))
    said = capsys.readouterr().out
    assert not re.search("[\x1b\x07\u202e]", said)
    assert "[red]x[/red]" in said


def test_the_table_says_where_servers_are_that_are_in_several_places(capsys):
    audit._print_report(audited(found("one"), found("one", "Zed"), found("two")))
    said = capsys.readouterr().out
    assert re.search(r"one +Cursor: /home/of/mcp.json +29 ", said) and "Zed: /home/of/mcp.json" in said


# The page


HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)></title></style>"


def test_the_page_is_well_formed_loads_nothing_and_runs_nothing():
    async def look(entry):
        if entry["args"] == ["dead"]:
            raise ValueError(HOSTILE)
        return ServerAnswer([*TOOLS, {"name": HOSTILE, "description": HOSTILE, "inputSchema": {}}], HOSTILE)

    servers = (found("good"), found(HOSTILE, host=HOSTILE), found("dead"), found("off", skipped=HOSTILE))
    text = report_pages.audit_page(audited(*servers, look=look))
    page = Page(text)
    assert page.open == []
    assert not {"script", "link", "img", "iframe", "object", "base"} & {tag for tag, _ in page.tags}
    names = {name for _, attributes in page.tags for name in attributes}
    assert not {"src", "href", "xlink:href", "srcset", "action"} & names
    assert not [name for name in names if name.startswith("on")]
    assert not re.search(r"https?:|//|url\(|@import", text)
    assert page.text.count(HOSTILE) >= 4


def test_the_page_can_be_read_by_those_who_do_not_see_it():
    page = Page(report_pages.audit_page(audited(found("good"), found("better"))))
    tags = [tag for tag, _ in page.tags]
    (svg,) = (attributes for tag, attributes in page.tags if tag == "svg")
    ids = {attributes.get("id") for _, attributes in page.tags}
    assert svg["role"] == "img" and set((svg["aria-labelledby"] or "").split()) <= ids
    assert ("html", {"lang": "en"}) in page.tags and "title" in tags and "desc" in tags
    assert all(attributes.get("scope") == "col" for tag, attributes in page.tags if tag == "th")


def test_a_page_of_nothing_says_so():
    page = Page(report_pages.audit_page(audited(found("off", skipped=files.DISABLED))))
    assert "No server could be asked." in page.text and files.DISABLED in page.text
    assert "svg" not in [tag for tag, _ in page.tags]


# Real servers


def test_servers_are_really_started(tmp_path, root, capsys):
    path = tmp_path / "mcp.json"
    serve = ["-m", "deltamcp", "serve", str(root / "examples" / "everything.py")]
    servers = {
        "everything": {"command": sys.executable, "args": serve},
        "dead": {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]},
        "absent": {"command": str(tmp_path / "no-such-program")},
        "nowhere": {"url": "http://127.0.0.1:9/mcp"},
    }
    path.write_text(json.dumps({"mcpServers": servers}))
    run(str(path), "--json", "--timeout", "20")
    report = json.loads(capsys.readouterr().out)
    problems = {server["name"]: server["problem"] for server in report["servers"]}
    assert problems.pop("everything") is None
    assert all(problems.values())
    assert report["together"]["tools"] > 5 and report["together"]["now"] > 500
