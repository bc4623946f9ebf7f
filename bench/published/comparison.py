"""One server asked directly and behind the gateway: whether both say the same, and what it costs a model."""

import contextlib
import json
import os
import queue
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from bench.published.harmless_calls import HarmlessCall
from deltamcp import tokens
from deltamcp.client.reply import Reply
from deltamcp.gateway.item_names import distinct_segments
from deltamcp.results.content import parse_tool_result, single_data
from deltamcp.work import unlimited_work
from tests.interop import raw
from tests.interop.prepared import end_left_running

NAME = "published"
"""What the server is called at the gateway."""
START_SECONDS, CALL_SECONDS = 60.0, 20.0
UNREACHABLE = (EOFError, OSError, queue.Empty, KeyError, TypeError)
"""How a process that ends, is silent or talks nonsense shows."""

Disclosure = Literal["full", "meta"]
Kind = Literal["table", "JSON", "text", "blocks", "texts beside a structure"]


class PublishedServer(Protocol):
    """How to start a server, and how to make its folder as it was before."""

    @property
    def words(self) -> list[str]: ...
    @property
    def environment(self) -> Mapping[str, str]: ...
    @property
    def folder(self) -> Path: ...
    def furnish(self) -> None: ...


@dataclass
class ComparedCall:
    call: HarmlessCall
    direct: dict[str, Any]
    """The response without the gateway."""
    behind: dict[Disclosure, dict[str, Any]] = field(default_factory=dict)
    differs: list[Disclosure] = field(default_factory=list)
    """Where the gateway says something else, although the server says the same twice."""
    varies: bool = False
    """Whether the server itself does not say the same twice, so that nothing can be compared."""

    @property
    def fails(self) -> bool:
        """Whether the server answers with an error, as many do without a network."""
        return "error" in self.direct or bool(self.direct["result"].get("isError"))

    @property
    def kind(self) -> Kind:
        """What the gateway reads the result as."""
        result = parse_tool_result(self.direct["result"])
        found = single_data(result, unlimited_work(), keeps_structure=False)
        if found is None:
            only_texts = all(block.get("type") == "text" for block in self.direct["result"]["content"])
            return (
                "texts beside a structure" if only_texts and "structuredContent" in self.direct["result"] else "blocks"
            )
        if isinstance(found.data, str):
            return "text"
        return "table" if text_of(self.behind["meta"]).startswith("#") else "JSON"


@dataclass
class Comparison:
    info: dict[str, Any]
    tools: list[dict[str, Any]]
    calls: list[ComparedCall]
    faults: list[str] = field(default_factory=list)
    """What does not work behind the gateway, apart from calls."""


class NotWorkingError(Exception):
    """The server does not work without the gateway; the text says why."""


def compare(
    server: PublishedServer,
    choose: Callable[[list[dict[str, Any]]], list[HarmlessCall]],
    disclosures: tuple[Disclosure, ...] = ("full", "meta"),
) -> Comparison:
    """Asks a server for its tools and some calls, and the gateway for the same; where they differ, both once more.

    Raises:
        NotWorkingError: the server does not start, has no tools, or ends during a call.
    """
    found = _compare_once(server, choose, disclosures)
    if any(one.differs for one in found.calls):
        again = {one.call.tool: one for one in _compare_once(server, choose, disclosures).calls}
        for one in found.calls:
            other = again.get(one.call.tool)
            says_otherwise = other and canonical(other.direct.get("result")) != canonical(one.direct.get("result"))
            if one.differs and other and (says_otherwise or not other.differs):
                one.differs, one.varies = [], True
    return found


def _compare_once(
    server: PublishedServer,
    choose: Callable[[list[dict[str, Any]]], list[HarmlessCall]],
    disclosures: tuple[Disclosure, ...],
) -> Comparison:
    with _directly(server) as judge:
        tools = judge.tools()
        if not tools:
            raise NotWorkingError("has no tools")
        found = Comparison(judge.info, tools, [])
        judge.seconds = CALL_SECONDS
        for call in choose(tools):
            with contextlib.suppress(queue.Empty):  # it waits for what is not there, and would behind the gateway
                response = judge.ask("tools/call", name=call.tool, arguments=call.arguments)
                found.calls.append(ComparedCall(call, response))
    for disclosure in disclosures:
        try:
            with _gateway(server, disclosure) as front:
                _compare_behind(found, disclosure, front)
        except UNREACHABLE as error:
            found.faults.append(f"{disclosure}: the gateway: {error!r}")
    return found


def _compare_behind(found: Comparison, disclosure: Disclosure, front: raw.Raw) -> None:
    offered = _find_in_list(found, front) if disclosure == "full" else _find_by_meta_tools(found, front)
    if not offered:
        found.faults.append(f"{disclosure}: no tool is there")
    for one in found.calls:
        name, arguments = offered.get(one.call.tool, one.call.tool), one.call.arguments
        try:
            if disclosure == "full":
                response = front.ask("tools/call", name=name, arguments=arguments)
            else:
                asked = {"operation": name, "params": arguments}
                response = front.ask("tools/call", name="execute", arguments=asked)
        except queue.Empty:
            response = {"error": {"message": "no answer in time"}}
        one.behind[disclosure] = response
        if not says_same(one.direct, response, lambda handle: _stored(front, handle)):
            one.differs.append(disclosure)


def _find_in_list(found: Comparison, front: raw.Raw) -> dict[str, str]:
    """Returns the names in the gateway's list by those of the server."""
    listed = _wait_for(front.tools, lambda listed: len(listed) >= len(found.tools))
    offered = {}
    for tool in found.tools:
        same = [one["name"] for one in listed if one["name"] == tool["name"]]
        renamed = [one["name"] for one in listed if one["inputSchema"] == tool["inputSchema"]]
        if same or renamed:
            offered[tool["name"]] = (same or renamed)[0]
    if offered:
        found.faults += [f"full: {tool['name']} is not listed" for tool in found.tools if tool["name"] not in offered]
    return offered


def _find_by_meta_tools(found: Comparison, front: raw.Raw) -> dict[str, str]:
    """Returns the operations that the gateway describes by the names of the server."""
    names = [tool["name"] for tool in found.tools]
    ids = [f"{NAME}.{segment}" for segment in distinct_segments(names)]
    _wait_for(lambda: _ask(front, "get_schema", operation=ids[-1]), bool)
    offered = {}
    for name, operation in zip(names, ids, strict=True):
        if operation in _ask(front, "get_schema", operation=operation):
            offered[name] = operation
    if offered:
        found.faults += [f"meta: {name} is not described" for name in names if name not in offered]
        lost = [name for name, operation in offered.items() if operation not in _ask(front, "discover", query=name)]
        found.faults += [f"meta: {name} is not found by its name" for name in lost]
    return offered


def says_same(direct: dict[str, Any], response: dict[str, Any], stored: Callable[[str], Any]) -> bool:
    """Whether a response of the gateway has the value of the server's own; shares no code with what makes it.

    Args:
        stored: Returns the whole result for a handle.
    """
    if "error" in direct:
        return json.dumps(direct["error"]["message"])[1:-1] in json.dumps(response)
    if "error" in response:
        return False
    wanted, reply = direct["result"], Reply(response["result"])
    if bool(wanted.get("isError")) != reply.is_error:
        return False
    if reply.handle is not None:
        whole = stored(reply.handle)
        if isinstance(whole, dict) and whole.keys() >= {"content"}:
            reply = Reply(whole)
            value = reply.value
        else:
            value = whole
    else:
        value = reply.value
    content, structure = wanted.get("content") or [], wanted.get("structuredContent")
    texts = [block["text"] for block in content if block.get("type") == "text"]
    if not content and structure is None:
        return reply.texts == ["(empty result)"]
    keeps_blocks = [canonical(one) for one in reply.content[: len(content)]] == [canonical(one) for one in content]
    if len(texts) < len(content) or (structure is None and keeps_blocks):
        return keeps_blocks and canonical(reply.raw.get("structuredContent")) == canonical(structure)
    of_texts = {
        canonical("\n".join(texts)),
        canonical(_parsed("\n".join(texts))),
        canonical([_parsed(t) for t in texts]),
    }
    if structure is None:
        return canonical(value) in of_texts
    inner = next(iter(structure.values())) if isinstance(structure, dict) and len(structure) == 1 else structure
    of_structure = {canonical(one) for one in (structure, inner, _parsed(inner) if isinstance(inner, str) else inner)}
    says_texts = of_texts & of_structure or canonical(_leaves(inner)) in of_texts
    return canonical(value) in of_structure and (bool(says_texts) or not texts or keeps_blocks)


def _leaves(value: Any) -> Any:
    """The items for which the official SDK writes a text each."""
    if isinstance(value, list):
        return [leaf for item in value for leaf in (_leaves(item) if isinstance(item, list) else [item])]
    return value


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def text_of(response: dict[str, Any]) -> str:
    """What a client puts before a model: the texts, or the structure where there is none."""
    if "error" in response:
        return str(response["error"]["message"])
    result = response["result"]
    texts = [block["text"] for block in result.get("content") or () if block.get("type") == "text"]
    if not texts and "structuredContent" in result:
        return json.dumps(result["structuredContent"], ensure_ascii=False)
    return "\n".join(texts)


def tokens_of(response: dict[str, Any]) -> int:
    return tokens.count(text_of(response))


def structure_tokens_of(response: dict[str, Any]) -> int:
    """What the structured content of a result costs beside its texts."""
    result = response["result"]
    if not result.get("content"):
        return 0
    return tokens.count(json.dumps(result["structuredContent"], ensure_ascii=False, separators=(",", ":")))


@contextlib.contextmanager
def _directly(server: PublishedServer) -> Iterator[raw.Raw]:
    server.furnish()
    with tempfile.TemporaryFile() as errors:
        try:
            with raw.started(server.words, server.environment, server.folder, errors) as judge:
                yield judge
        except UNREACHABLE as error:
            errors.seek(0)
            said = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
            why = "does not answer in time" if isinstance(error, queue.Empty) else "ends"
            raise NotWorkingError(f"{why}: {said[-1]}" if said else why) from error
        finally:
            end_left_running(server.folder)


@contextlib.contextmanager
def _gateway(server: PublishedServer, disclosure: Disclosure) -> Iterator[raw.Raw]:
    """A gateway with its defaults, new to the server."""
    server.furnish()
    with tempfile.TemporaryDirectory() as scratch:
        entry = {
            "command": server.words[0],
            "args": server.words[1:],
            "env": dict(server.environment),
            "cwd": str(server.folder),
        }
        config = Path(scratch) / "servers.json"
        config.write_text(json.dumps({"mcpServers": {NAME: entry}}))
        homes = {f"XDG_{purpose}_HOME": scratch for purpose in ("CONFIG", "CACHE", "STATE")}
        words = [str(Path(sys.executable).parent / "delta-mcp"), "gateway", "--disclosure", disclosure, str(config)]
        try:
            with raw.started(words, {"PATH": os.environ["PATH"], "HOME": scratch, **homes}, Path(scratch)) as front:
                yield front
        finally:
            end_left_running(server.folder)


def _wait_for(ask: Callable[[], Any], is_there: Callable[[Any], bool]) -> Any:
    """What is asked for, once it is there, or what there is when the time for a start is over."""
    end = time.monotonic() + START_SECONDS
    while not is_there(found := ask()) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def _ask(front: raw.Raw, meta_tool: str, **arguments: Any) -> str:
    """The text that a meta-tool answers with; none if it reports an error."""
    response = front.ask("tools/call", name=meta_tool, arguments=arguments)
    return "" if "error" in response or response["result"].get("isError") else text_of(response)


def _stored(front: raw.Raw, handle: str) -> Any:
    [contents] = front.ask("resources/read", uri=f"delta-mcp://results/{handle}")["result"]["contents"]
    return json.loads(contents["text"]) if contents.get("mimeType") == "application/json" else contents["text"]
