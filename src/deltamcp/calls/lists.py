"""Answers to list requests: pages of tools, resources and prompts, tool definitions by name, and the manifest."""

from collections.abc import Mapping
from typing import Any, Literal

from deltamcp.calls.capabilities import Capabilities
from deltamcp.calls.failures import refuse_withheld
from deltamcp.calls.request_context import RequestContext
from deltamcp.calls.requested_root import accept_root
from deltamcp.catalog.catalog import Catalog
from deltamcp.catalog.view import did_you_mean
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.delivery.sent_results import CallKey, call_digest
from deltamcp.dialects.progressive_disclosure import MAX_NAMES
from deltamcp.errors import Fault
from deltamcp.values import Answer, Definitions, Describe, Failure, ListItems, ListManifest, Outcome

_WRONG_CURSOR = Failure(Fault.INVALID_PARAMS, "params.cursor is not a cursor of this server; start without one.")


class Lists:
    """Lists the items of the catalogue that the caller may see."""

    def __init__(self, catalog: Catalog, capabilities: Capabilities, changes: ChangeDelivery) -> None:
        self._catalog = catalog
        self._capabilities = capabilities
        self._changes = changes

    async def list_items(self, ask: ListItems, request: RequestContext) -> Outcome:
        if not self._capabilities.offers(ask.kind):
            return Failure(Fault.UNKNOWN_METHOD, f"This server offers no {ask.kind.value}.")
        view = request.view
        terms = request.terms
        page = view.page(ask.kind, terms.surface or view.surface, ask.cursor, ask.whole, terms.result_shape)
        return _WRONG_CURSOR if page is None else Answer(page)

    async def describe(self, ask: Describe, request: RequestContext) -> Outcome:
        if not ask.names:
            return Failure(Fault.INVALID_PARAMS, "params.names is empty; name a tool.", {"reason": "empty"})
        if len(ask.names) > MAX_NAMES:
            message = f"params.names takes at most {MAX_NAMES} names."
            return Failure(Fault.INVALID_PARAMS, message, {"maxNames": MAX_NAMES})
        found = {name: request.view.definition(name, request.terms.result_shape) for name in ask.names}
        refused = refuse_withheld((name for name, tool in found.items() if tool is None), request)
        if refused is not None:
            return refused
        unknown = [name[:200] for name, tool in found.items() if tool is None]
        if unknown and ask.alone:
            return self.unknown("tool", ask.names[0], request)
        if unknown:
            message = f"There are no tools {', '.join(map(repr, unknown[:10]))}."
            return Failure(Fault.NOT_FOUND, message, {"unknownNames": unknown})
        return Answer(Definitions(tuple(tool for name in ask.names if (tool := found[name])), ask.alone))

    async def list_manifest(self, ask: ListManifest, request: RequestContext) -> Outcome:
        page = request.view.manifest(ask.cursor, request.terms.result_shape)
        if page is None:
            return _WRONG_CURSOR
        root = await accept_root(request, self._changes)
        if isinstance(root, Failure):
            return root
        if root is None:
            return Answer(page)
        call = CallKey(request.terms.caller, call_digest(["tools/manifest", ask.cursor]))
        return Answer(await self._changes.deliver_manifest(page, call, root))

    def unknown(self, kind: Literal["tool", "prompt", "template"], name: str, request: RequestContext) -> Failure:
        """Returns the failure of a request for an unknown name, with the most similar known names."""
        view = request.view
        items: dict[str, Mapping[str, Any]] = {
            "tool": view.operations,
            "prompt": self._catalog.prompts,
            "template": self._catalog.templates,
        }
        operation = view.find(name) if kind == "tool" else None
        nearest = [operation.name] if operation is not None else view.nearest_names(name[:200], items[kind])
        message = f"There is no {kind} {name[:200]!r}.{did_you_mean(nearest)}"
        return Failure(Fault.NOT_FOUND, message, {"name": name[:200], "nearest": nearest})
