"""What a model sees of a gateway, and a place to try it: searches, schemas and calls as a model would make them."""

import asyncio
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from deltamcp import tokens
from deltamcp.catalog.disclosure import definition_tokens
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.catalog.search.index import SearchIndex, is_weak, relevant_hits
from deltamcp.catalog.view import View
from deltamcp.context import Channel
from deltamcp.dashboard.call_records import CallRecords, outcome_name, outcome_text
from deltamcp.dashboard.servers import Servers
from deltamcp.dialects.versions import MODERN
from deltamcp.errors import UsageError
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.gateway import Gateway
from deltamcp.gateway.gateway_upstream import GatewayUpstream
from deltamcp.gateway.ledger import NOT_A_MODEL
from deltamcp.gateway.trust.definition import pointer
from deltamcp.gateway.trust.quarantine import ABSENCES
from deltamcp.gateway.upstream_items import is_offered, is_read_only
from deltamcp.results import content
from deltamcp.results.blocks import count_result
from deltamcp.values import JSON, LOCAL, Answer, CallTool, Era, Kind, Outcome, RawResult, Surface, Terms, ToolResult
from deltamcp.version import VERSION

_MAX_HITS = 10
_MAX_REPLY_CHARS = 200_000
_CLIENT: dict[str, JSON] = {"name": "delta-mcp dashboard", "version": VERSION}


class HiddenTool(NamedTuple):
    """A tool that a server lists and no model sees."""

    server: str
    name: str
    definition: dict[str, JSON]
    reason: str


class _HiddenTools(NamedTuple):
    basis: tuple[Any, ...]
    tools: list[HiddenTool]
    search_index: SearchIndex


class Playground:
    """Tries things at one gateway, as its local user."""

    def __init__(self, gateway: Gateway, servers: Servers, records: CallRecords) -> None:
        self._gateway = gateway
        self._servers = servers
        self._records = records
        self._hidden: _HiddenTools | None = None
        self._trying = asyncio.Lock()

    @property
    def _view(self) -> View:
        return self._gateway.server.engine.catalog.view(LOCAL)

    # What is listed

    async def surface(self) -> JSON:
        """Returns what `tools/list` and the instructions say, with their tokens."""
        view = self._view
        page = view.page(Kind.TOOLS, view.surface, None, whole=True)
        assert page is not None, "the first page is always there"
        instructions = self._gateway.server.engine.capabilities.about(LOCAL).instructions or ""
        definitions = await asyncio.to_thread(
            lambda: [
                {"name": tool["name"], "tokens": definition_tokens(tool), "definition": tool} for tool in page.items
            ]
        )
        return {
            "surface": view.surface.value,
            "definitions": definitions,
            "tokens": sum(one["tokens"] for one in definitions),
            "instructions": instructions,
            "instructionTokens": tokens.count(instructions) if instructions else 0,
            "tools": len(view.operations),
        }

    async def list_tools(self, text: str, server: str, after: int, limit: int) -> JSON:
        """Returns tools in the order of the catalog, with what each costs as a plain definition; hidden ones last."""
        view, names = self._view, self._servers.segments
        hidden = await asyncio.to_thread(self._hidden_tools)
        wanted = text.casefold()
        rows: list[tuple[str, str, Operation | HiddenTool]] = [
            (names.get(one.id.partition(".")[0], ""), one.id, one) for one in view.operations.values()
        ]
        rows += [(one.server, one.name, one) for one in hidden.tools]
        found = [
            (place, name, one)
            for place, name, one in rows
            if (not server or place == server) and (not wanted or wanted in name.casefold())
        ]
        shown = found[max(0, after) : max(0, after) + max(1, min(limit, 500))]
        listed = await asyncio.to_thread(lambda: [self._tool_row(*row) for row in shown])
        return {"tools": listed, "total": len(found), "hidden": len(hidden.tools)}

    def _tool_row(self, server: str, name: str, one: Operation | HiddenTool) -> JSON:
        if isinstance(one, HiddenTool):
            cost = definition_tokens(one.definition)
            return {"id": name, "server": server, "tokens": cost, "summary": "", "hidden": one.reason}
        return {
            "id": one.id,
            "server": server,
            "tokens": self._servers.counts.of(one),
            "summary": one.summary,
            "hidden": "",
        }

    async def describe(self, name: str) -> JSON:
        """Returns one tool: its schema as a model reads it, and the definition that a host would load without us.

        Raises:
            UsageError: there is none of this name.
        """
        view = self._view
        operation = view.find(name)
        if operation is None:
            return await self._describe_hidden(name)
        meta = view.running_meta_tool(operation)
        if view.surface is Surface.META:
            reply = outcome_text(
                await self._ask(view.meta_tool_name(MetaTool.GET_SCHEMA), {"operation": [operation.id]})
            )
        else:
            reply = msgspec.json.encode(operation.tool).decode()
        return {
            "id": operation.id,
            "name": operation.name,
            "server": self._servers.segments.get(operation.id.partition(".")[0], ""),
            "summary": operation.summary,
            "hidden": "",
            "schema": reply,
            "schemaTokens": await asyncio.to_thread(tokens.count, reply),
            "definition": operation.tool,
            "definitionTokens": await asyncio.to_thread(self._servers.counts.of, operation),
            "runs": view.meta_tool_name(meta) if view.surface is Surface.META else operation.name,
            "example": _example(operation.tool.get("inputSchema")),
        }

    async def _describe_hidden(self, name: str) -> JSON:
        hidden = await asyncio.to_thread(self._hidden_tools)
        found = next((one for one in hidden.tools if one.name == name), None)
        if found is None:
            near = self._view.nearest_ids(name)
            raise UsageError(f"There is no tool {name[:80]!r}{'; did you mean ' + near[0] + '?' if near else '.'}")
        return {
            "id": found.name,
            "name": found.name,
            "server": found.server,
            "summary": "",
            "hidden": found.reason,
            "schema": "",
            "schemaTokens": 0,
            "definition": found.definition,
            "definitionTokens": definition_tokens(found.definition),
            "runs": "",
            "example": {},
        }

    # Hidden tools

    def _hidden_tools(self) -> _HiddenTools:
        gateway, view = self._gateway, self._view
        behind = list(gateway.upstreams.values())
        verdicts = (gateway.quarantine.verdicts(one.connection) for one in behind)
        basis = (view, *(item for one in behind for item in (one.config, one.listing)), *verdicts)
        known = self._hidden
        is_same = (
            known is not None
            and len(known.basis) == len(basis)
            and all(one is other for one, other in zip(known.basis, basis, strict=True))
        )
        if known is None or not is_same:
            tools = [*self._scoped_tools(view), *(hidden for one in behind for hidden in self._hidden_of(one))]
            index = SearchIndex()
            for number, hidden in enumerate(tools):
                index.put(str(number), hidden.definition, hidden.server)
            known = self._hidden = _HiddenTools(basis, tools, index)
        return known

    def _scoped_tools(self, view: View) -> Iterator[HiddenTool]:
        names = self._servers.segments
        for one in self._gateway.server.engine.catalog.operations.values():
            if one.name not in view.operations:
                scopes = ", ".join(sorted(one.scopes))
                reason = f"only callers with the scope {scopes} see it" if scopes else "a rule of the gateway hides it"
                yield HiddenTool(names.get(one.id.partition(".")[0], ""), one.id, one.tool, reason)

    def _hidden_of(self, behind: GatewayUpstream) -> Iterator[HiddenTool]:
        config, listing = behind.config, behind.listing
        verdicts = self._gateway.quarantine.verdicts(behind.connection)
        for tool in () if listing is None else listing.tools:
            name = tool.get("name")
            if not isinstance(name, str) or not name:
                continue
            reason = _operators_reason(name, tool, config)
            if not reason and verdicts is None:
                reason = "what was approved of its server cannot be read, so that nothing of it is offered"
            verdict = None if verdicts is None else verdicts.get(pointer("/tools", name))
            if not reason and verdict is not None:
                reason = ABSENCES[verdict].rstrip(".")
            if reason:
                yield HiddenTool(config.name, f"{config.name}.{name}", tool, reason)

    # Trying

    async def search(self, query: str) -> JSON:
        """Returns what a model gets for a query, each hit with why it was found, and what it cannot find and why."""
        view = self._view
        reply = None
        if view.surface is Surface.META and query.strip():
            outcome = await self._ask(view.meta_tool_name(MetaTool.DISCOVER), {"query": [query]})
            text = outcome_text(outcome)
            reply = {"text": text[:_MAX_REPLY_CHARS], "tokens": await asyncio.to_thread(tokens.count, text)}
        hidden = await asyncio.to_thread(self._hidden_tools)
        index = view.index.search_index()  # `discover` has built it, in a thread if it is large
        names = None if len(view.operations) == len(index) else view.operations.keys()
        hits = index.search(query, _MAX_HITS, names)
        shown = {hit.id for hit in relevant_hits(hits)}
        found: list[JSON] = []
        for hit in hits:
            operation = view.operations.get(hit.id)
            if operation is not None:
                found.append(
                    {
                        "id": operation.id,
                        "summary": operation.summary,
                        "score": round(hit.score, 3),
                        "coverage": round(hit.coverage, 3),
                        "shown": hit.id in shown,
                        "weak": is_weak(hit),
                        "named": hit.is_named,
                        "reasons": [reason._asdict() for reason in index.reasons(query, hit.id)],
                    }
                )
        missed: list[JSON] = [
            {"id": one.name, "server": one.server, "reason": one.reason}
            for hit in relevant_hits(hidden.search_index.search(query, _MAX_HITS))
            for one in (hidden.tools[int(hit.id)],)
        ]
        return {"query": query, "hits": found, "hidden": missed, "reply": reply, "missing": view.missing_name(query)}

    async def call(self, name: str, arguments: dict[str, JSON]) -> JSON:
        """Calls a tool as a model would, and returns the reply with its tokens, and those without the gateway.

        Raises:
            UsageError: there is no such tool, or it is kept out.
        """
        view = self._view
        operation = view.find(name)
        if operation is None:
            raise UsageError(view.absence(name) or f"There is no tool {name[:80]!r} that a model may call.")
        asked, sent = operation.name, arguments
        if view.surface is Surface.META:
            asked = view.meta_tool_name(view.running_meta_tool(operation))
            sent = {"operation": operation.id, "params": arguments}
        async with self._trying:
            self._records.tried = None
            outcome = await self._ask(asked, sent)
            tried = self._records.tried
        value = msgspec.UNSET if tried is None else tried.value
        before, after = await asyncio.to_thread(_count, value, outcome)
        text = outcome_text(outcome)
        return {
            "tool": asked,
            "arguments": sent,
            "reply": text[:_MAX_REPLY_CHARS],
            "isCut": len(text) > _MAX_REPLY_CHARS,
            "before": before,
            "after": after,
            "ms": None if tried is None else round(tried.seconds * 1000, 1),
            "outcome": outcome_name(outcome),
        }

    async def _ask(self, name: str, arguments: dict[str, JSON]) -> Outcome:
        engine = self._gateway.server.engine
        caller = engine.identify(LOCAL, NOT_A_MODEL)
        terms = Terms(Era.MODERN, MODERN[0], {}, _CLIENT, {}, caller=caller)
        return await engine.perform(CallTool(name, arguments), terms, _PersonChannel(), 0)


class _PersonChannel(Channel):
    """A person at the dashboard, who cannot be asked during a call."""

    fairness_key = NOT_A_MODEL
    headers = MappingProxyType({})
    unasked = "At the dashboard nobody can be asked during a call; call the tool by a client."


def _count(value: Any, outcome: Outcome) -> tuple[int | None, int | None]:
    result = outcome.value if isinstance(outcome, Answer) else None
    after = count_result(result) if isinstance(result, ToolResult | RawResult) else None
    if value is msgspec.UNSET:
        return None, after
    try:
        return count_result(value if isinstance(value, RawResult) else content.tool_result(value, None)), after
    except ValueError:  # a value that cannot be sent
        return None, after


def _operators_reason(name: str, tool: dict[str, JSON], config: UpstreamConfig) -> str:
    """Returns why the operator does not have a tool offered; empty if it is."""
    if is_offered(name, tool, config):
        return ""
    if config.read_only and not is_read_only(tool):
        return "read_only = true of its server, and it does not say that it only reads"
    if not is_offered(name, tool, msgspec.structs.replace(config, deny=())):
        return "allow of its server does not name it"
    return "deny of its server names it"


def _example(schema: Any) -> dict[str, JSON]:
    """Returns arguments to begin with: the required ones, empty or as the schema has them by default."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    empty = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}
    found: dict[str, JSON] = {}
    for name in schema.get("required", ()) if isinstance(schema.get("required"), list) else ():
        one = properties.get(name) if isinstance(name, str) else None
        if isinstance(one, dict):
            kind = one.get("type")
            values = one.get("enum")
            first = (
                values[0] if isinstance(values, list) and values else empty.get(kind if isinstance(kind, str) else "")
            )
            found[name] = one.get("default", first)
    return found
