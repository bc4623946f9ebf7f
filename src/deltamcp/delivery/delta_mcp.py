"""Delta-MCP's results for that protocol's clients: its shapes, and its paging by the arguments `page` and `pageSize`.

A page is turned in a snapshot of the result, so that the tool is not run again and what one page ends with the next
goes on from.
"""

import hashlib
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.catalog.operation import Operation
from deltamcp.delivery.stored_results import Keeping
from deltamcp.results import delta_shapes, document
from deltamcp.results.content import Source
from deltamcp.results.kept import Head, wanted
from deltamcp.results.notes import Handle
from deltamcp.results.policy import META_KEY, Shaping
from deltamcp.results.shape import is_linked
from deltamcp.results.window import budget_of
from deltamcp.values import ANONYMOUS, JSON, Principal, ResourceLink, Text, ToolResult
from deltamcp.wire import jsonrpc

_NAMES = ("page", "pageSize")


class Turn(Struct, frozen=True):
    """Which page of a result a call asks for."""

    name: str
    """The snapshot's."""
    page: JSON
    page_size: JSON


class Paging:
    """Replies in Delta-MCP's shapes. What they leave out is kept, and read on in as any other result."""

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping

    def turned(
        self, operation: Operation, arguments: Mapping[str, JSON], shaping: Shaping
    ) -> tuple[dict[str, JSON], Turn | None]:
        """A call's arguments for the tool, and the page it asks for where that is not the tool's own affair."""
        declared = not operation.parameter_names.isdisjoint(_NAMES)
        if shaping.auto_page is False or (declared and shaping.auto_page is not True):
            return dict(arguments), None
        own = {name: value for name, value in arguments.items() if name not in _NAMES}
        form = msgspec.json.encode([operation.name, own], order="deterministic")
        turn = Turn(f"page {hashlib.sha256(form).hexdigest()}", *(arguments.get(name) for name in _NAMES))
        return (dict(arguments) if declared else own), turn

    async def snapshot(self, turn: Turn, shaping: Shaping, principal: Principal) -> ToolResult | None:
        """Another page of a result that was given before; None where the tool has to run."""
        # Strangers would be shown each other's: to the same call of a tool that looks at who asks.
        if turn.page is None or turn.page == 1 or principal.id == ANONYMOUS.id:
            return None
        known = await self._keeping.recalled(turn.name, principal)
        if known is None:
            return None
        name, value = known
        return _reply(value, shaping, turn, None if name is None else self._keeping.handle(name))

    async def begin(
        self, source: Source, shaping: Shaping | None, turn: Turn | None, principal: Principal
    ) -> ToolResult:
        """A result in the protocol's shapes, where it needs one of them; without a `shaping` it never does."""
        data = source.data if shaping is None else wanted(source.data, shaping)[0]
        value = data if isinstance(data, str) else document.decode(data)
        if shaping is None:
            return _said(value)
        handle = None
        if not shaping.compat:
            if data == source.data and not _mended(value, shaping, turn, 0).cut:
                return _said(value)
            head = Head("text" if isinstance(value, str) else "json", None, shaping)
            handle, _ = await self._keeping.keep(source.data, principal, lambda _: (head, None))
        if turn is not None and isinstance(value, list) and principal.id != ANONYMOUS.id:
            await self._keeping.remember(turn.name, [handle and handle.name, value], principal)
        return _reply(value, shaping, turn, handle)


def _reply(value: JSON, shaping: Shaping, turn: Turn | None, handle: Handle | None) -> ToolResult:
    if shaping.compat:
        return _said(delta_shapes.original(value, shaping.max_tokens, shaping.page_size, *_asked(turn)))
    if handle is None or not is_linked(shaping):
        return _said(_mended(value, shaping, turn, 0).value, handle)
    # The same pages whatever the handle, which chance makes longer or shorter: each of its characters counts as one.
    nameless = jsonrpc.encode(handle.link).decode().replace(handle.name, "")
    spare = tokens.count(nameless, shaping.model) + 2 * len(handle.name) + 1
    return _said(_mended(value, shaping, turn, spare).value, handle, handle.link)


def _asked(turn: Turn | None) -> tuple[JSON, JSON]:
    return (None, None) if turn is None else (turn.page, turn.page_size)


def _mended(value: JSON, shaping: Shaping, turn: Turn | None, spare: int) -> delta_shapes.Shape:
    """`spare` tokens are for something else."""
    budget = budget_of(replace(shaping, max_tokens=shaping.max_tokens - spare))
    page, size = _asked(turn)
    most, after = shaping.max_tokens, shaping.page_size
    return delta_shapes.mended(value, budget.admits, most, page, size, after, turns=turn is not None)


def _said(value: JSON, handle: Handle | None = None, *links: ResourceLink) -> ToolResult:
    """A value as the protocol has it: JSON in one text, whatever it is."""
    meta = None if handle is None else {META_KEY: {"handle": handle.name}}
    return ToolResult([Text(delta_shapes.stringify(value)), *links], meta=meta)
