"""What a tool returned or raised, as its caller's reply: whole, as much as fits, or in another protocol's shape."""

import logging
import time
from typing import Any

from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.catalog.meta_tools import Meta
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.view import View
from deltamcp.errors import UnfitError
from deltamcp.meta_calls import Wishes
from deltamcp.paging import Paging, Turn
from deltamcp.reading import Reading
from deltamcp.results import content
from deltamcp.results.content import Source
from deltamcp.results.policy import META_KEY, Shaping, nearer, wish_of
from deltamcp.results.rate_limit import rate_limited
from deltamcp.values import Terms, Text, ToolResult
from deltamcp.wire import jsonrpc

logger = logging.getLogger("deltamcp")


def shaping_of(operation: Operation, view: View, terms: Terms, wishes: Wishes | None) -> Shaping | None:
    """How a result is made to fit; None where nobody asks for that, and it is sent as it is.

    Raises:
        UnfitError: it is asked for in a way that cannot be read, or kept to.
    """
    shaping = operation.shaping
    if wishes is None and META_KEY not in terms.meta:
        return shaping
    said = wish_of(terms.meta)
    if said is not None:
        if view.called(Meta.CONTINUE) in view.operations:
            raise UnfitError(f"{view.called(Meta.CONTINUE)} is another tool here, so what is cut could not be read.")
        shaping = nearer(said, shaping or view.shaping)
    if wishes is None:
        return shaping
    shaping = nearer(wishes.policy, shaping or view.shaping)
    if not wishes.beside:
        return shaping
    return replace(shaping, max_tokens=shaping.max_tokens - tokens.count(wishes.beside, shaping.model) - 1)


class Fitting:
    """Replies to calls of tools."""

    def __init__(self, reading: Reading, paging: Paging) -> None:
        self._reading = reading
        self._paging = paging

    async def reply(
        self, value: Any, operation: Operation, shaping: Shaping | None, turn: Turn | None, terms: Terms, flat: bool
    ) -> ToolResult:
        """What a function returned; `turn` is the page of it that a client of Delta-MCP asks for.

        Called `flat`, by its own name, a tool is held to its output schema; a meta-tool promises none.
        """
        structured = operation.structured if operation.output_schema is not None else None
        try:
            if shaping is None and not terms.delta:
                return content.tool_result(value, structured)
            made = content.returned(value, structured)
        except ValueError as error:
            logger.error("tool %s returned a value that cannot be sent: %s", operation.name, error)
            return content.error_result(f"{operation.name} returned a value that cannot be sent: {error}.")
        if isinstance(made, Source):
            return await self._begin(made, operation if flat else None, shaping, turn, terms)
        if made.is_error:
            return made
        source = content.source_of(made) or (content.NOTHING if terms.delta and not made.content else None)
        if source is not None:
            reply = await self._begin(source, operation if flat else None, shaping, turn, terms)
            return replace(reply, meta={**made.meta, **(reply.meta or {})}) if made.meta else reply
        if shaping is None:
            return made
        return await self._reading.begin_blocks(made, shaping, terms.principal, flat and structured is not None)

    async def _begin(
        self, source: Source, held_to: Operation | None, shaping: Shaping | None, turn: Turn | None, terms: Terms
    ) -> ToolResult:
        if terms.delta or shaping is None:
            return await self._paging.begin(source, shaping, turn, terms.principal)
        admits = held_to.admits if held_to is not None and held_to.output_schema is not None else None
        return await self._reading.begin(source, shaping, terms.principal, admits)


def limited(error: BaseException, operation: Operation, flat: bool) -> ToolResult | None:
    """An upstream's "too many requests" as a result the model can act on; None for any other failure.

    Where an output schema promises something else, as to who calls it `flat`, clients accept it only as an error.
    """
    said = rate_limited(error, operation.name, time.time())
    if said is None:
        return None
    return ToolResult([Text(jsonrpc.encode(said).decode())], is_error=flat and operation.output_schema is not None)
