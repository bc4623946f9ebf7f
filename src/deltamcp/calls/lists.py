"""What a server says of itself, and of what it offers: pages of items, tool definitions by name, the manifest."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from deltamcp.calls.failures import refuse_withheld
from deltamcp.calls.observers import DisclosureObservers
from deltamcp.calls.operation_search import OperationSearch
from deltamcp.calls.request_context import RequestContext, accept_since
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.directory import NO_NOTICES
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.search.words import MIN_SIMILARITY
from deltamcp.catalog.view import View, did_you_mean
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.delivery.sent_results import CallKey, call_digest
from deltamcp.delivery.stored_results import ResultOrigin
from deltamcp.dialects.progressive_disclosure import MAX_NAMES
from deltamcp.errors import Fault
from deltamcp.runtime.threads import Computations
from deltamcp.values import (
    JSON,
    LOCAL,
    About,
    Answer,
    Definitions,
    Describe,
    Failure,
    Kind,
    ListItems,
    ListManifest,
    Outcome,
    Principal,
    ResultShape,
    Surface,
)

_WRONG_CURSOR = Failure(Fault.INVALID_PARAMS, "params.cursor is not a cursor of this server; start without one.")
_MAX_FOUND = 50
"""The tools that a search lists."""
_MAX_AVAILABLE = 20
"""The names of tools that MCP-lite's error for an unknown one has."""
_MAX_ECHO_CHARS = 128


class Capabilities:
    """Derives the server's capabilities from what a principal is offered at the time of its request."""

    def __init__(self, catalog: Catalog, info: dict[str, JSON]) -> None:
        self._catalog = catalog
        self._info = info

    def about(self, principal: Principal) -> About:
        """Returns the server's description, for `initialize` and `server/discover`."""
        catalog = self._catalog.of(principal)
        capabilities: dict[str, JSON] = {"logging": {}}
        if self.completes(principal):
            capabilities["completions"] = {}
        if self.offers(Kind.PROMPTS, principal):
            capabilities["prompts"] = {"listChanged": True}
        if self.offers(Kind.RESOURCES, principal):
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if self.offers(Kind.TOOLS, principal):
            capabilities["tools"] = {"listChanged": True}
        return About(self._info, capabilities, catalog.instructions, catalog.gives_promises)

    def gives_promises(self, principal: Principal) -> bool:
        """Whether a tool may answer with a promise."""
        return self._catalog.of(principal).gives_promises

    def completes(self, principal: Principal) -> bool:
        """Whether arguments of prompts or templates may be completed."""
        return self._catalog.of(principal).completes

    def offers(self, kind: Kind, principal: Principal) -> bool:
        """Whether the server has items of a kind, or may get some while it runs."""
        catalog = self._catalog.of(principal)
        if kind in catalog.kinds:
            return True
        if kind is Kind.TOOLS:
            # The author of an empty server is assumed to register tools later.
            return bool(catalog.operations) or not (catalog.prompts or catalog.resources or catalog.templates)
        if kind is Kind.PROMPTS:
            return bool(catalog.prompts)
        # Behind meta-tools operations are resources too, and `auto` may choose meta-tools later.
        return bool(catalog.resources or catalog.templates) or catalog.scoped_view(LOCAL).may_cut_results

    def offered_kinds(self, kinds: Iterable[Kind], principal: Principal) -> frozenset[Kind]:
        """Returns those of some kinds of lists that the server has."""
        return frozenset(kind for kind in kinds if self.offers(kind, principal))


class Lists:
    """Lists the items of the catalog that the caller may see."""

    def __init__(
        self,
        capabilities: Capabilities,
        changes: ChangeDelivery,
        search: OperationSearch,
        computations: Computations,
        observers: DisclosureObservers,
        await_start: Callable[[str, RequestContext], Awaitable[bool]],
    ) -> None:
        """`await_start` is as of `MetaCalls`."""
        self._await_start = await_start
        self._search = search
        self._computations = computations
        self._observers = observers
        self._capabilities = capabilities
        self._changes = changes

    async def list_items(self, ask: ListItems, request: RequestContext) -> Outcome:
        is_lite = request.terms.result_shape is ResultShape.MCP_LITE  # which has no capabilities to say so before
        if not is_lite and not self._capabilities.offers(ask.kind, request.terms.caller.principal):
            return Failure(Fault.UNKNOWN_METHOD, f"This server offers no {ask.kind.value}.")
        view = request.view
        terms = request.terms
        if ask.type is not None or ask.query is not None:
            return Answer(view.lite_page(await self._filter(ask, request), terms.surface or Surface.FULL))
        page = view.page(ask.kind, terms.surface or view.surface, ask.cursor, ask.whole, terms.result_shape)
        if page is None:
            return _WRONG_CURSOR
        if ask.kind is Kind.TOOLS and ask.cursor is None:
            self._observers.tools_listed(page, request)
        return Answer(page)

    async def _filter(self, ask: ListItems, request: RequestContext) -> list[Operation]:
        view = request.view
        names = {name for name, item in view.operations.items() if ask.type is None or item.type == ask.type}
        if ask.query is None:
            return [item for name, item in view.operations.items() if name in names]
        found = await self._search.find(view, [ask.query], _MAX_FOUND, names, request.terms.caller.account)
        return [hit.operation for hit in found[ask.query]]

    async def describe(self, ask: Describe, request: RequestContext) -> Outcome:
        if not ask.names:
            return Failure(Fault.INVALID_PARAMS, "params.names is empty; name a tool.", {"reason": "empty"})
        if len(ask.names) > MAX_NAMES:
            message = f"params.names takes at most {MAX_NAMES} names."
            return Failure(Fault.INVALID_PARAMS, message, {"maxNames": MAX_NAMES})
        found = _definitions(ask.names, request)
        first_unknown = next((name for name, tool in found.items() if tool is None), None)
        if first_unknown is not None and await self._await_start(first_unknown, request):
            found = _definitions(ask.names, request)
        refused = refuse_withheld((name for name, tool in found.items() if tool is None), request)
        if refused is not None:
            return refused
        unknown = [name[:200] for name, tool in found.items() if tool is None]
        if unknown and ask.alone:
            return await self.unknown("tool", ask.names[0], request)
        if unknown:
            notices = request.view.notices(request.terms.caller.principal)
            told = {name: text for name in unknown if (text := request.view.absence(name) or notices.of(name))}
            message = " ".join([f"There are no tools {', '.join(map(repr, unknown[:10]))}.", *told.values()])
            data: dict[str, JSON] = {"unknownNames": unknown, **({"reasons": {**told}} if told else {})}
            return Failure(Fault.NOT_FOUND, message, data)
        return Answer(Definitions(tuple(tool for name in ask.names if (tool := found[name])), ask.alone))

    async def list_manifest(self, ask: ListManifest, request: RequestContext) -> Outcome:
        page = request.view.manifest(ask.cursor, request.terms.result_shape)
        if page is None:
            return _WRONG_CURSOR
        root = await accept_since(request, self._changes)
        if isinstance(root, Failure):
            return root
        if root is None:
            return Answer(page)
        origin = ResultOrigin("tools/manifest", request.view.scopes)
        call = CallKey(request.terms.caller, call_digest(["tools/manifest", ask.cursor]), origin)
        return Answer(await self._changes.deliver_manifest(page, call, root))

    async def unknown(self, kind: Literal["tool", "prompt", "template"], name: str, request: RequestContext) -> Failure:
        """Returns the failure of a request for an unknown name, with the most similar known names."""
        view = request.view
        notices = view.notices(request.terms.caller.principal) if kind == "tool" else NO_NOTICES
        if absence := view.absence(name) or notices.of(name):
            return Failure(Fault.NOT_FOUND, absence, {"name": name[:200]})
        await self._computations.take_turn(request.terms.caller.account)  # names are compared in up to 10 ms
        if request.terms.result_shape is ResultShape.MCP_LITE:
            return _unknown_in_mcp_lite(kind, name, view)
        items: dict[str, Mapping[str, Any]] = {
            "tool": view.operations,
            "prompt": view.prompts,
            "template": view.templates,
        }
        operation = view.find(name) if kind == "tool" else None
        nearest = [operation.name] if operation is not None else view.nearest_names(name[:200], items[kind])
        message = "\n".join([f"There is no {kind} {name[:200]!r}.{did_you_mean(nearest)}", *notices.lines()])
        return Failure(Fault.NOT_FOUND, message, {"name": name[:200], "nearest": nearest})


def _definitions(names: Sequence[str], request: RequestContext) -> dict[str, dict[str, JSON] | None]:
    return {name: request.view.definition(name, request.terms.result_shape) for name in names}


def _unknown_in_mcp_lite(kind: str, name: str, view: View) -> Failure:
    """Returns the failure in the words and with the data of MCP-lite."""
    if kind != "tool":
        return Failure(Fault.INVALID_PARAMS, f"There is no {kind} {name[:_MAX_ECHO_CHARS]!r}.")
    listed = view.lite_names
    similar = view.similar_names(name[:_MAX_ECHO_CHARS], _MAX_AVAILABLE)
    data = {
        "requested_tool": name[:_MAX_ECHO_CHARS],
        "available_tools": listed if len(listed) <= _MAX_AVAILABLE else [found for found, _ in similar],
        "available_tools_total": len(listed),
    }
    by_id = view.find(name)
    if by_id is not None:
        data["suggestion"] = f"Did you mean {by_id.name!r}?"
    elif similar and similar[0][1] > MIN_SIMILARITY:
        data["suggestion"] = f"Did you mean {similar[0][0]!r}?"
    return Failure(Fault.NOT_FOUND, "Tool not found", data)
