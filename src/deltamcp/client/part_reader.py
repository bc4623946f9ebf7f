"""Reads parts of results: from the server that stores the whole result, or from this client, which cut it itself."""

from deltamcp.client.connector import Connector
from deltamcp.client.lists import ServerLists
from deltamcp.client.local_results import LocalResults
from deltamcp.client.recovery import read_all, recover
from deltamcp.client.reply import Reply
from deltamcp.errors import ArgumentsError
from deltamcp.results.policy import ResultPolicy
from deltamcp.values import JSON


class PartReader:
    """The parts of results that have a handle."""

    def __init__(self, connector: Connector, lists: ServerLists, max_bytes: int) -> None:
        self._connector, self._lists, self._max_bytes = connector, lists, max_bytes
        self._local_results: LocalResults | None = None

    async def fit(self, reply: Reply, want: ResultPolicy) -> Reply:
        """Cuts a reply to the limits in `want`, and keeps the complete result."""
        if self._local_results is None:
            self._local_results = LocalResults()
        return await self._local_results.fit(reply, want)

    async def read_on(self, arguments: dict[str, JSON]) -> Reply:
        """Returns the part that the arguments of `continue` select.

        Raises:
            ArgumentsError: the handle has expired, or the result has no such part.
        """
        if self._local_results is not None and self._local_results.has_handle(str(arguments["handle"])):
            return await self._local_results.read_on(arguments)
        params = {"name": await self._lists.continue_tool_name(), "arguments": arguments}
        reply = Reply(await self._connector.request("tools/call", params), max_bytes=self._max_bytes)
        if reply.is_error:
            raise ArgumentsError(reply.text)
        return reply

    async def read_all(self, handle: str) -> JSON:
        """Returns the complete result that the server stores under a handle.

        Raises:
            ResultLostError: the result cannot be read.
        """
        return await read_all(handle, self.read_on, self._max_bytes)

    async def recover(self, first: Reply) -> JSON:
        """Returns the complete result of which `first` is the first reply.

        Raises:
            ResultLostError: the rest of the result cannot be read.
        """
        return await recover(first, self.read_on, self._max_bytes)
