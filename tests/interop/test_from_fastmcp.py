"""A server of FastMCP and the same one with this library, `examples/from_fastmcp/`, for the SDK's client.

What differs is in tables here, and on the page "Coming from FastMCP".
"""

import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from tests.interop.install import READY, folder
from tests.support.paths import FORKED_PYTHON, ROOT

pytestmark = pytest.mark.interop

EXAMPLE = ROOT / "examples" / "from_fastmcp"
ANSWERS = {"reader": "Ada", "weeks": 3, "value": "attic"}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("get_book", {"id": 1}),
    ("get_book", {"id": 9}),
    ("get_book", {"id": 2}),
    ("find_books", {"query": "aus", "limit": 2}),
    ("count_books", {}),
    ("get_stats", {}),
    ("titles_by", {"order": "year"}),
    ("describe_shelf", {}),
    ("get_cover", {"id": 1}),
    ("get_page", {"id": 1}),
    ("price", {"id": 1}),
    ("import_books", {"titles": ["Ulysses", "Dubliners"]}),
    ("count_books", {}),
    ("get_shelf", {}),
    ("choose_shelf", {"name": "blue"}),
    ("get_shelf", {}),
    ("forget_shelf", {}),
    ("read_summary", {}),
    ("write_review", {"title": "Emma"}),
    ("lend_book", {"id": 1}),
    ("lend_book", {"id": 1}),
    ("get_stats", {}),
    ("move_book", {"id": 3}),
    ("delete_book", {"id": 3}),
    ("set_year", {"id": 1, "year": 2030}),
    ("set_year", {"id": 1, "year": 1816}),
    ("list_calls", {}),
]
READS = ["library://summary", "library://pixel", "library://authors/Austen"]
PROMPTS: list[tuple[str, dict[str, str]]] = [
    ("review", {"title": "Emma"}),
    ("discuss", {"title": "Emma"}),
    ("discuss", {"title": "Emma", "tone": "short"}),
]
ONLY_BY_HANDSHAKE = {"lend_book", "move_book", "delete_book"}
"""The tools of FastMCP that cannot ask clients of 2026-07-28."""
DIFFERENT: list[tuple[str, dict[str, Any], str, str]] = [
    ("find_books", {"query": "zzz"}, "no content", "[]"),
    ("find_books", {"query": "x", "limit": 99}, "1 validation error for call[find_books]", "Invalid arguments for"),
    ("burn_library", {}, "Unknown tool: 'burn_library'", "-32602 There is no tool 'burn_library'."),
]
"""Calls that are answered in other words: what FastMCP says, and what this library says."""


class Host:
    """What a client hears, without what each library adds of its own."""

    def __init__(self) -> None:
        self.logged: list[tuple[str, Any]] = []
        self.progress: list[tuple[float, float | None, str | None]] = []
        self.asked: list[tuple[str, Any]] = []

    async def elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        schema = params.requested_schema
        self.asked.append((params.message, plain_schema(schema)))
        answers: dict[str, Any] = {
            name: True if form["type"] == "boolean" else ANSWERS[name] for name, form in schema["properties"].items()
        }
        return types.ElicitResult(action="accept", content=answers)

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        data = params.data  # FastMCP puts the text beside `extra`
        self.logged.append((params.level, data["msg"] if isinstance(data, dict) else data))

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append((progress, total, message))


@contextlib.asynccontextmanager
async def client_of(library: str, mode: str, host: Host) -> AsyncIterator[Client]:
    place = folder("fastmcp")
    if library == "fastmcp" and not (place / READY).is_file():
        pytest.skip("FastMCP is not installed: python -m tests.interop.install fastmcp")
    python, file = (
        (place / "bin" / "python", "fastmcp_server.py") if library == "fastmcp" else (FORKED_PYTHON, "server.py")
    )
    quiet = {**os.environ, "FASTMCP_LOG_LEVEL": "CRITICAL", "FASTMCP_CHECK_FOR_UPDATES": "off"}
    target = StdioServerParameters(command=str(python), args=[str(EXAMPLE / file)], cwd=str(ROOT), env=quiet)
    async with Client(target, mode=mode, elicitation_callback=host.elicit, logging_callback=host.log) as client:
        yield client


def plain_schema(schema: Mapping[str, Any], definitions: Mapping[str, Any] | None = None) -> Any:
    """A schema without titles, references and words of a library; an object without properties says so."""
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    if "$ref" in schema:
        return plain_schema(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    kept = {
        key: value
        for key, value in schema.items()
        if key not in ("$defs", "x-fastmcp-wrap-result") and not (key == "title" and isinstance(value, str))
    }
    for key, value in kept.items():
        if key == "properties":
            kept[key] = {name: plain_schema(one, definitions) for name, one in value.items()}
        elif isinstance(value, dict):
            kept[key] = plain_schema(value, definitions)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            kept[key] = [plain_schema(one, definitions) for one in value]
    return {"properties": {}, **kept} if kept.get("type") == "object" else kept


def plain(result: Any) -> Any:
    """A result without the `_meta` that each library adds of its own."""
    fields = json.loads(result.model_dump_json(exclude_none=True, by_alias=True))
    meta = fields.pop("_meta", {})
    own = {key: value for key, value in meta.items() if key not in ("fastmcp", "io.modelcontextprotocol/serverInfo")}
    return {key: value for key, value in {**fields, "_meta": own}.items() if key not in ("ttlMs", "cacheScope")}


async def answers(client: Client, host: Host) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, (name, arguments) in enumerate(CALLS):
        result = await client.call_tool(name, arguments, progress_callback=host.report)
        found[f"{number} {name}"] = plain(result)
    for uri in READS:
        found[uri] = plain(await client.read_resource(uri))
    for number, (name, texts) in enumerate(PROMPTS):
        found[f"{number} {name}"] = plain(await client.get_prompt(name, texts))
    title = types.PromptReference(type="ref/prompt", name="review")
    found["completion"] = (await client.complete(title, {"name": "title", "value": "E"})).completion.values
    return {**found, "logged": host.logged, "progress": host.progress, "asked": host.asked}


async def lists(client: Client) -> dict[str, Any]:
    return {
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "annotations": tool.annotations,
                "tags": tags(tool.meta),
                "input": plain_schema(tool.input_schema),
                "output": tool.output_schema and plain_schema(tool.output_schema),
            }
            for tool in (await client.list_tools()).tools
        ],
        "resources": [
            (one.uri, one.name, one.description, one.mime_type, tags(one.meta))
            for one in (await client.list_resources()).resources
        ],
        "templates": [
            (one.uri_template, one.name, one.description, one.mime_type)
            for one in (await client.list_resource_templates()).resource_templates
        ],
        "prompts": [
            (one.name, one.description, [(each.name, bool(each.required)) for each in one.arguments or ()])
            for one in (await client.list_prompts()).prompts
        ],
        "instructions": client.instructions,
    }


def tags(meta: Mapping[str, Any] | None) -> list[str]:
    found: list[str] = (meta or {}).get("io.github.delta-mcp/tags") or (meta or {}).get("fastmcp", {}).get("tags", [])
    return found


async def say(client: Client, name: str, arguments: dict[str, Any]) -> str:
    try:
        result = await client.call_tool(name, arguments)
    except MCPError as error:
        return f"{error.error.code} {error}"
    text = [block.text for block in result.content if isinstance(block, types.TextContent)]
    return text[0] if text else "no content"


class Record(NamedTuple):
    lists: dict[str, Any]
    answers: dict[str, Any]
    said: dict[str, str]


_RECORDS: dict[tuple[str, str], Record] = {}


async def record(library: str, mode: str) -> Record:
    """What a server lists and answers; each is asked once, as FastMCP takes seconds to start."""
    if (library, mode) not in _RECORDS:
        host = Host()
        async with client_of(library, mode, host) as client:
            listed, answered = await lists(client), await answers(client, host)
            said = {
                json.dumps([name, arguments]): await say(client, name, arguments) for name, arguments, *_ in DIFFERENT
            }
        _RECORDS[library, mode] = Record(listed, answered, said)
    return _RECORDS[library, mode]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_both_servers_list_the_same(mode):
    before, after = await record("fastmcp", mode), await record("ours", mode)
    assert after.lists == before.lists
    assert {tool["name"] for tool in after.lists["tools"]} == {name for name, _ in CALLS}
    assert len(after.lists["tools"]) == 20


async def test_both_servers_answer_the_same():
    before, after = await record("fastmcp", "legacy"), await record("ours", "legacy")
    assert after.answers == before.answers


async def test_the_port_answers_clients_of_2026_07_28_as_others():
    legacy, modern = await record("ours", "legacy"), await record("ours", "2026-07-28")
    again = {
        "logged",
        "26 list_calls",
    }  # a function that asks runs again with the answer, and so does what is around it
    assert {key: one for key, one in modern.answers.items() if key not in again} == {
        key: one for key, one in legacy.answers.items() if key not in again
    }


async def test_what_differs_is_as_the_page_says():
    before, after = await record("fastmcp", "legacy"), await record("ours", "legacy")
    for name, arguments, said, says in DIFFERENT:
        key = json.dumps([name, arguments])
        assert before.said[key].startswith(said) and after.said[key].startswith(says)
    modern = (await record("fastmcp", "2026-07-28")).answers
    for key, answer in modern.items():
        if key.partition(" ")[2] in ONLY_BY_HANDSHAKE:
            assert "unavailable on 2026-07-28" in answer["content"][0]["text"]
    assert modern["15 get_shelf"]["content"][0]["text"] == "The shelf is unknown."  # right after it was chosen


def test_the_page_shows_every_line_that_differs():
    before, after = ((EXAMPLE / name).read_text().splitlines() for name in ("fastmcp_server.py", "server.py"))
    text = (ROOT / "docs" / "coming-from-fastmcp.md").read_text()
    shown = [
        line
        for block in re.findall(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    changed = {f"-{line}" for line in before if line not in after} | {
        f"+{line}" for line in after if line not in before
    }
    assert {line for line in changed if line.strip("+-").strip() and '"""' not in line} - {*shown} == set()
    assert all(line[1:] in (before if line.startswith("-") else after) for line in shown)
