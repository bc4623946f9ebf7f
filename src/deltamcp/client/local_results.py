"""Cuts the results of servers that do not know Delta-MCP to a policy, and stores the complete results for a while."""

from collections import OrderedDict
from collections.abc import Mapping

from msgspec import UNSET
from msgspec.structs import replace

from deltamcp.client.reply import Reply
from deltamcp.delivery.continuation import Continuation
from deltamcp.delivery.stored_results import UNSCOPED, StoredResults
from deltamcp.errors import ArgumentsError, UsageError
from deltamcp.limits import Limits
from deltamcp.results.content import ResultData
from deltamcp.results.policy import META_KEY, ResultPolicy, resolve_policy
from deltamcp.runtime.computations import Computations
from deltamcp.stores.memory import MemoryStore
from deltamcp.values import JSON, LOCAL, Caller
from deltamcp.wire import jsonrpc

_MAX_HANDLES = 10_000
_CALLER = Caller(LOCAL)


class LocalResults:
    """Applies a Delta-MCP server's result pipeline in the client."""

    def __init__(self) -> None:
        limits = Limits()
        stored = StoredResults(MemoryStore(), limits, "client", "client", "read_on")
        self._continuation = Continuation(stored, Computations(limits.work_steps))
        self._handles: OrderedDict[str, None] = OrderedDict()

    async def fit(self, reply: Reply, want: ResultPolicy) -> Reply:
        """Returns a reply that shows as much of the result as the policy allows.

        A reply that was a part stays one: `rest` in its `_meta` says that there is more on the server.
        """
        result, policy = reply.result(), replace(resolve_policy(want), fields_requested=True)
        if len(reply.content) > 1 or (reply.content and not reply.texts and result.structured is UNSET):
            fitted = Reply.of(
                await self._continuation.first_reply_of_blocks(result, policy, _CALLER, UNSCOPED, promised=False)
            )
        else:
            value = reply.value
            data = value if isinstance(value, str) else jsonrpc.encode(value)
            fitted = Reply.of(
                await self._continuation.first_reply(ResultData(data, value=value), policy, _CALLER, UNSCOPED)
            )
        if isinstance(fitted.delta_meta.get("handle"), str):
            self._handles[fitted.delta_meta["handle"]] = None
            if len(self._handles) > _MAX_HANDLES:
                self._handles.popitem(last=False)
        if reply.is_error:
            fitted.raw["isError"] = True
        if not reply.is_part:
            return fitted
        meta = fitted.raw.get("_meta", {})
        marked = {**meta, META_KEY: {**meta.get(META_KEY, {}), "rest": "not stored"}}
        return Reply({**fitted.raw, "_meta": marked})

    def has_handle(self, handle: str) -> bool:
        return handle in self._handles

    async def read_on(self, arguments: Mapping[str, JSON]) -> Reply:
        """Returns the part of a stored result that the arguments of `continue` select.

        Raises:
            ArgumentsError: the handle has expired, or the arguments select nothing.
        """
        try:
            return Reply.of(await self._continuation.next_reply(arguments, _CALLER))
        except UsageError as error:
            raise ArgumentsError(str(error)) from None
