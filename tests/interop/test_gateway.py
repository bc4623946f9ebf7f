"""Servers that strangers published, all behind one gateway at once, beside a judge that asks each directly.

`make test` has the few that are quick to install, `make interop` all of the table.
"""

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltamcp import tokens
from tests.interop import raw, web
from tests.interop.prepared import ALL, NAMES, end_left_running, prepare
from tests.interop.servers import Call

pytestmark = pytest.mark.interop

START_SECONDS = 400
"""How long all servers of the table may take to start on a busy machine with two cores."""
META_TOKENS, QUERY_TOKENS = 320, 375


class Response(msgspec.Struct):
    """A response whose result is kept as it was written."""

    result: msgspec.Raw = msgspec.Raw()
    error: Any = None


@dataclass(frozen=True)
class Direct:
    """What a server says without the gateway."""

    tools: list[dict[str, Any]]
    call: Call
    response: Response


@dataclass(frozen=True)
class Behind:
    """A gateway in front of all servers, and the calls that each of them answers there."""

    front: raw.Raw
    calls: dict[str, Call]


def folder_of(base: Path, name: str) -> Path:
    folder = base / name
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def web_address() -> Iterator[str]:
    with web.serving() as address:
        yield address


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gateway")


def ask_directly(name: str, folder: Path, web_address: str) -> Direct:
    server = prepare(name, folder, web_address)
    with raw.started(server.words, server.environment) as judge:
        tools = judge.tools()
        line = judge.ask_line("tools/call", name=server.call.tool, arguments=server.call.arguments)
    end_left_running(folder)
    return Direct(tools, server.call, msgspec.json.decode(line, type=Response))


@pytest.fixture(scope="module")
def direct(base: Path, web_address: str) -> dict[str, Direct]:
    """Every server is asked in a folder of its own; folders of the gateways have names of the same length."""
    return {name: ask_directly(name, folder_of(base / "one", name), web_address) for name in NAMES}


@contextlib.contextmanager
def gateway(base: Path, place: str, web_address: str, *words: str) -> Iterator[Behind]:
    """A gateway with all servers; nothing of it is left running after it."""
    servers = {name: prepare(name, folder_of(base / place, name), web_address) for name in NAMES}
    entries = {
        name: {"command": server.words[0], "args": server.words[1:], "env": server.environment, "cwd": str(Path.cwd())}
        for name, server in servers.items()
    }
    config = base / f"{place}.json"
    config.write_text(json.dumps({"mcpServers": entries}))
    homes = {f"XDG_{purpose}_HOME": str(base / f"{place}-{purpose}") for purpose in ("CONFIG", "CACHE", "STATE")}
    program = str(Path(sys.executable).parent / "delta-mcp")
    with raw.started([program, "gateway", *words, str(config)], {**os.environ, **homes}) as front:
        yield Behind(front, {name: server.call for name, server in servers.items()})
    left = [found for name in NAMES for found in _after_a_while(base / place / name)]
    assert not left, f"still running: {left}"


def _after_a_while(folder: Path) -> list[str]:
    """What still runs some seconds after the gateway was killed; nothing, if all of it ended."""
    end = time.monotonic() + 30
    while time.monotonic() < end and _is_running(folder):
        time.sleep(0.2)
    return end_left_running(folder)


def _is_running(folder: Path) -> bool:
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"HOME={folder}\0".encode() in (place / "environ").read_bytes():
                return True
    return False


@pytest.fixture(scope="module")
def flat(base: Path, web_address: str, direct: dict[str, Direct]) -> Iterator[Behind]:
    with gateway(base, "two", web_address, "--disclosure", "full", "--raw", "--prefix") as behind:
        wanted = sum(len(found.tools) for found in direct.values())
        _wait_until(lambda: len(_upstream_tools(behind)) >= wanted, "all tools in the flat list")
        yield behind


@pytest.fixture(scope="module")
def meta(base: Path, web_address: str, direct: dict[str, Direct]) -> Iterator[Behind]:
    with gateway(base, "six", web_address) as behind:
        _wait_until(lambda: all(f"{name}" in _overview(behind) for name in NAMES), "all servers in discover")
        _wait_until(
            lambda: all(
                _call_text(behind, "get_schema", operation=f"{name}.{_segment(found.tools[-1]['name'])}")
                for name, found in direct.items()
            ),
            "the last tool of every server",
        )
        yield behind


def _wait_until(condition: Any, what: str) -> None:
    end = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(1)


def _upstream_tools(behind: Behind) -> list[dict[str, Any]]:
    prefixes = tuple(f"{name}_" for name in NAMES)
    return [tool for tool in behind.front.tools() if tool["name"].startswith(prefixes)]


def _segment(name: str) -> str:
    """A tool's name as the part of an id: letters, digits, hyphens and underscores."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")


def _call_text(behind: Behind, meta_tool: str, **arguments: Any) -> str:
    """The text that a meta-tool answers with; none if it reports an error."""
    result = behind.front.ask("tools/call", name=meta_tool, arguments=arguments)["result"]
    return "" if result.get("isError") else "\n".join(block["text"] for block in result["content"])


def _overview(behind: Behind) -> str:
    return _call_text(behind, "discover")


def _shown_tokens(tools: list[dict[str, Any]]) -> int:
    """What definitions cost as hosts send them."""
    shown = [
        {"name": tool["name"], "description": tool.get("description", ""), "input_schema": tool["inputSchema"]}
        for tool in tools
    ]
    return sum(tokens.count(json.dumps(one, separators=(",", ":"), ensure_ascii=False)) for one in shown)


def _in_place(text: bytes, base: Path, place: str) -> bytes:
    """An answer as if it had been given in the folder of the judge."""
    return text.replace(f"{base}/{place}/".encode(), f"{base}/one/".encode())


def test_the_flat_list_has_every_tool_as_its_server_wrote_it(flat, direct):
    listed = {tool["name"]: tool for tool in _upstream_tools(flat)}
    wanted = [(name, tool) for name, found in direct.items() for tool in found.tools]
    # Some servers have more tools for a client that can be asked, as the gateway can and the direct one here cannot.
    assert len(listed) >= len(wanted) and (not ALL or len(direct) >= 25)
    for name, tool in wanted:
        short = f"{name}_{tool['name']}"
        found = [listed[short]] if short in listed else [one for one in listed.values() if _is_like(one, tool, name)]
        assert found, short
        assert _without_name(found[0]) == _without_name(tool), short


def _is_like(listed: dict[str, Any], tool: dict[str, Any], server: str) -> bool:
    return listed["name"].startswith(f"{server}_") and _without_name(listed) == _without_name(tool)


def _without_name(tool: dict[str, Any]) -> str:
    # Which tools run as tasks says the server that a client talks to.
    kept = {key: value for key, value in tool.items() if key not in ("name", "execution")}
    return json.dumps(kept, sort_keys=True).replace("/two/", "/one/")


@pytest.mark.parametrize("name", NAMES)
def test_a_call_through_the_flat_list_answers_to_the_byte(flat, direct, base, web_address, name):
    call = flat.calls[name]
    line = flat.front.ask_line("tools/call", name=f"{name}_{call.tool}", arguments=call.arguments)
    response, wanted = msgspec.json.decode(line, type=Response), direct[name].response
    if call.outcome == "refuses":
        assert response.error["message"] == wanted.error["message"]
        return
    if _in_place(bytes(response.result), base, "two") != bytes(wanted.result):
        again = ask_directly(name, folder_of(base / "ten", name), web_address)
        same = _in_place(bytes(again.response.result), base, "ten") == bytes(wanted.result)
        assert not same, "the gateway changed an answer that the server gives twice"
    assert any(call.says in block.get("text", "") for block in msgspec.json.decode(response.result)["content"])


def test_discover_finds_every_tool_by_its_own_name_and_get_schema_describes_it(meta, direct):
    lost, undescribed = [], []
    for name, found in direct.items():
        for tool in found.tools:
            operation = f"{name}.{_segment(tool['name'])}"
            if operation not in _call_text(meta, "discover", query=tool["name"]) and operation not in _call_text(
                meta, "discover", query=f"{name} {tool['name']}"
            ):
                lost.append(operation)
            if operation not in _call_text(meta, "get_schema", operation=operation):
                undescribed.append(operation)
    assert (lost, undescribed) == ([], [])


@pytest.mark.parametrize("name", NAMES)
def test_a_call_through_execute_has_the_same_value(meta, direct, base, web_address, name):
    call = meta.calls[name]
    arguments = {"operation": f"{name}.{_segment(call.tool)}", "params": call.arguments}
    response = meta.front.ask("tools/call", name="execute", arguments=arguments)
    if call.outcome == "refuses":
        assert direct[name].response.error["message"] in json.dumps(response)
        return
    result, wanted = response["result"], msgspec.json.decode(direct[name].response.result)
    assert result.get("isError", False) == wanted.get("isError", False)
    # A note below says where structured content is that did not fit beside the text.
    blocks = [one["content"][: len(wanted["content"])] for one in (result, wanted)]
    texts = ["\n".join(block.get("text", "") for block in one) for one in blocks]
    said, expected = _in_place(texts[0].encode(), base, "six").decode(), texts[1]
    assert call.says in said
    if tokens.count(expected) <= 20_000 and _value(said) != _value(expected):
        again = ask_directly(name, folder_of(base / "six-again", name), web_address)
        repeated = msgspec.json.decode(again.response.result)["content"][0].get("text", "")
        assert repeated.replace("/six-again/", "/one/") != expected, f"{said[:500]} is not {expected[:500]}"


def _value(text: str) -> Any:
    """The JSON value that a text is, or the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def test_what_all_of_them_cost_up_front(meta, direct, base, web_address, capsys):
    plain = sum(_shown_tokens(found.tools) for found in direct.values())
    listed = meta.front.tools()
    assert {tool["name"] for tool in listed} == {"discover", "get_schema", "execute", "query", "continue"}
    with_query = _shown_tokens(listed)
    tools = sum(len(found.tools) for found in direct.values())
    with capsys.disabled():
        print(f"\n{len(direct)} servers, {tools} tools: {plain:,} tokens plain, {with_query} behind meta-tools")
    assert with_query <= QUERY_TOKENS


def test_what_all_of_them_cost_up_front_with_four_meta_tools(meta, base):
    """The gateway has seen the servers, so that it lists them before any of them has started."""
    homes = {f"XDG_{purpose}_HOME": str(base / f"six-{purpose}") for purpose in ("CONFIG", "CACHE", "STATE")}
    program = str(Path(sys.executable).parent / "delta-mcp")
    with raw.started([program, "gateway", "--no-query", str(base / "six.json")], {**os.environ, **homes}) as front:
        listed = front.tools()
    assert {tool["name"] for tool in listed} == {"discover", "get_schema", "execute", "continue"}
    assert _shown_tokens(listed) <= META_TOKENS
