"""`list`, `describe` and `call` on servers that strangers published, beside a judge that shares no code with us.

`make test` runs the few that are quick to install, `make interop` all of the table.
"""

import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from pydantic import ValidationError

from deltamcp import DeltaClient, DeltaServer, connect, tokens
from deltamcp.catalog.disclosure import Disclosure
from tests.interop import raw, web
from tests.interop.prepared import NAMES, end_left_running, prepare
from tests.interop.servers import SERVERS, Call
from tests.support.fork_server import Start, run_forked

pytestmark = pytest.mark.interop

LIKE_SDK = ("time", "git", "sqlite")
"""Servers that write definitions by the SDK that `sdk-1x` has, and take half a second to start."""
EXIT_CODES = {"answers": 0, "fails": 1, "refuses": 1}


@dataclass(frozen=True)
class Subject:
    """A server of the table, ready to be started, and what it told the judge."""

    name: str
    words: list[str]
    folder: Path
    environment: dict[str, str]
    call: Call
    info: dict[str, Any]
    tools: list[Any]


@pytest.fixture(scope="module")
def web_address() -> Iterator[str]:
    with web.serving() as address:
        yield address


@pytest.fixture(scope="module", params=NAMES)
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, web_address: str
) -> Iterator[Subject]:
    name = request.param
    folder = tmp_path_factory.mktemp(name)

    server = prepare(name, folder, web_address)
    with raw.started(server.words, server.environment) as judge:
        tools = judge.tools()
    yield Subject(name, server.words, folder, server.environment, server.call, judge.info, tools)
    left = end_left_running(folder)
    assert not left, f"still running: {left}"


def _delta_mcp(verb: str, subject: Subject, *rest: str) -> "subprocess.CompletedProcess[str]":
    """What our command line makes of a server, in a process of its own."""
    return _run(subject, verb, "--json", *subject.words, *rest)


def _run(subject: Subject, *words: str) -> "subprocess.CompletedProcess[str]":
    ran = run_forked(Start(words, str(subject.folder), subject.environment))
    return subprocess.CompletedProcess(words, ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def _connected(subject: Subject) -> DeltaClient:
    return connect({"command": subject.words[0], "args": subject.words[1:], "env": subject.environment})


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def test_list_has_every_tool(subject: Subject) -> None:
    ran = _delta_mcp("list", subject)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert [tool["name"] for tool in said["tools"]] == [tool["name"] for tool in subject.tools]
    assert len(said["tools"]) == SERVERS[subject.name].tools
    assert (said["server"]["name"], said["server"]["version"]) == (subject.info["name"], subject.info["version"])


@pytest.mark.parametrize(
    "subject",
    [pytest.param(name, marks=pytest.mark.deep) if name in LIKE_SDK else name for name in NAMES],
    indirect=True,
)
def test_describe_gives_a_definition_as_the_server_gave_it(subject: Subject) -> None:
    ran = _delta_mcp("describe", subject, subject.call.tool)
    assert ran.returncode == 0, ran.stderr
    (wanted,) = [tool for tool in subject.tools if tool["name"] == subject.call.tool]
    assert _canonical(json.loads(ran.stdout)) == _canonical(wanted)


@pytest.mark.deep
async def test_the_client_gives_every_definition_as_the_server_gave_it(subject: Subject) -> None:
    async with _connected(subject) as client:
        described = await client.describe()
    assert _canonical(described) == _canonical(subject.tools)


def test_call_gives_what_the_tool_says(subject: Subject) -> None:
    call = subject.call
    ran = _delta_mcp("call", subject, call.tool, json.dumps(call.arguments))
    assert ran.returncode == EXIT_CODES[call.outcome], ran.stderr
    if call.outcome == "refuses":
        assert call.says in ran.stderr
        return
    result = json.loads(ran.stdout)
    assert result.get("isError", False) is (call.outcome == "fails")
    assert any(call.says in part.get("text", "") for part in result["content"]), ran.stdout


@pytest.mark.parametrize("subject", ["everything", pytest.param("git", marks=pytest.mark.deep)], indirect=True)
def test_commands_report_the_same_tokens_for_one_server(subject: Subject) -> None:
    """The judge counts each definition as a host sends it; every command's figure is the sum of these."""
    hosts_send = {
        tool["name"]: {"name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]}
        for tool in subject.tools
    }
    counts = {
        name: tokens.count(json.dumps(sent, separators=(",", ":"), ensure_ascii=False))
        for name, sent in hosts_send.items()
    }
    whole = sum(counts.values())

    config = subject.folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"it": {"command": subject.words[0], "args": subject.words[1:]}}}))
    listed, benched = (
        json.loads(_delta_mcp(*words).stdout)["tokens"]
        for words in (("list", subject), ("bench", subject, "--rounds", "1"))
    )
    described = _run(subject, "describe", *subject.words, subject.call.tool).stdout
    report = json.loads(_run(subject, "audit", str(config), "--json").stdout)
    [audited] = report["servers"]

    server, gateway = DeltaServer("it", disclosure="meta"), DeltaServer("it", disclosure=Disclosure("meta", query=True))
    for tool in subject.tools:
        options = {"name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]}
        server.tool(**options, category="it")(_do_nothing())
        gateway.tool(**options, category="it", annotations=tool.get("annotations", {}))(_do_nothing())
    costs = server.costs

    assert listed["full"] == benched["all definitions"]["up front"] == audited["cost"]["now"] == costs.full == whole
    assert listed["index"] == benched["names and summaries"]["up front"]
    # There the category has the name that the server gives itself.
    assert abs(benched["meta-tools"]["up front"] - costs.meta) <= 8
    assert abs(benched["meta-tools"]["one tool used"] - costs.meta - costs.overview - costs.schema) <= 24
    assert audited["cost"]["surface"] == gateway.costs.meta
    assert report["together"] == audited["cost"]
    assert {tool["name"]: tool["now"] for tool in report["tools"]} == counts
    assert described.endswith(f" tokens so, {counts[subject.call.tool]:,} in full.\n")


def _do_nothing() -> Callable[[dict[str, Any]], Awaitable[None]]:
    async def run(arguments: dict[str, Any]) -> None: ...

    return run


@pytest.mark.parametrize("subject", ["gitlab"], indirect=True)
async def test_the_official_client_gives_up_where_ours_lists(subject: Subject) -> None:
    parameters = StdioServerParameters(command=subject.words[0], args=subject.words[1:], env=subject.environment)
    async with Client(parameters) as official:
        with pytest.raises(ValidationError, match=r"inputSchema\.type"):
            await official.list_tools()
    said = json.loads(_delta_mcp("list", subject).stdout)
    assert len(said["tools"]) == 9


@pytest.mark.parametrize("subject", ["chrome-devtools"], indirect=True)
async def test_a_vendors_own_annotations_survive(subject: Subject) -> None:
    """`annotations.category` is in no schema of MCP, and typed clients drop it."""
    async with _connected(subject) as client:
        described = await client.describe()
    categories = [definition["annotations"]["category"] for definition in described]
    assert len(categories) == 32
    assert {"input", "navigation"} < set(categories)
