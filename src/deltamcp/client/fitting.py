"""Results of servers that know no budget, made to fit here: a part is shown, the whole is kept for a while."""

from collections import OrderedDict
from collections.abc import Mapping

from msgspec import UNSET

from deltamcp.client.reply import Reply
from deltamcp.delivery.continuation import Reading
from deltamcp.delivery.stored_results import Keeping
from deltamcp.errors import ArgumentsError, UnfitError
from deltamcp.limits import Limits
from deltamcp.results.content import Source
from deltamcp.results.policy import ResultPolicy, shaping
from deltamcp.stores.memory import MemoryStore
from deltamcp.values import JSON, LOCAL
from deltamcp.wire import jsonrpc

_HANDLES = 10_000


class LocalFitting:
    """The pipeline of a Delta-MCP server, on this side of the wire."""

    def __init__(self) -> None:
        self._reading = Reading(Keeping(MemoryStore(), Limits(), "client", "client", "read_on"))
        self._handles: OrderedDict[str, None] = OrderedDict()

    async def fit(self, reply: Reply, want: ResultPolicy) -> Reply:
        """What was wanted of a result."""
        result, how = reply.result(), shaping(want)
        if len(reply.content) > 1 or (reply.content and not reply.texts and result.structured is UNSET):
            made = Reply.of(await self._reading.begin_blocks(result, how, LOCAL, promised=False))
        else:
            value = reply.value
            data = value if isinstance(value, str) else jsonrpc.encode(value)
            made = Reply.of(await self._reading.begin(Source(data, value=value), how, LOCAL))
        if isinstance(made.told.get("handle"), str):
            self._handles[made.told["handle"]] = None
            if len(self._handles) > _HANDLES:
                self._handles.popitem(last=False)
        if reply.is_error:
            made.raw["isError"] = True
        return made

    def has(self, handle: str) -> bool:
        return handle in self._handles

    async def read_on(self, arguments: Mapping[str, JSON]) -> Reply:
        """
        Raises:
            ArgumentsError: there is nothing to read on in, or not there, or not so.
        """
        try:
            return Reply.of(await self._reading.go_on(arguments, LOCAL))
        except UnfitError as error:
            raise ArgumentsError(str(error)) from None
