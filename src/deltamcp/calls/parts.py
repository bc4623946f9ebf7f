"""The parts of a result, which a generator function yields one after the other.

Each part goes to the client as soon as it is there, where the client takes parts; all of them together are the value of
the call. The function goes on when the part is sent, so that it does not run ahead of a slow reader.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from deltamcp.context import Channel, Context
from deltamcp.errors import ToolError
from deltamcp.runtime.quota import Quota
from deltamcp.wire import jsonrpc

_PART_BYTES = 64
"""What a part takes beside its data."""
_TOO_MANY = "Too many parts of unfinished results are in memory for this client; read those first, and try again."


class PartQuotas:
    """The parts of results in memory, until all of a result are there."""

    def __init__(self, quota: Quota, seconds: float) -> None:
        """`seconds` is how long a part waits for other calls of its account to end."""
        self.quota = quota
        self.seconds = seconds


class _Parts:
    """The parts of one call so far, which count for its account."""

    def __init__(self, quotas: PartQuotas, account: str, channel: Channel) -> None:
        self.values: list[Any] = []
        self._quota = quotas.quota
        self._seconds = quotas.seconds
        self._account = account
        self._channel = channel
        self._bytes = 0

    async def add(self, part: Any) -> None:
        """Keeps a part, and sends it.

        Raises:
            ToolError: the account may not have so many bytes of parts.
        """
        size = _part_bytes(part)
        if self._bytes + size > self._quota.share:
            raise ToolError(f"The result has more than {self._quota.share} bytes; ask for less at once.")
        if not await self._quota.take_in_turn(self._account, size, self._seconds):
            raise ToolError(_TOO_MANY)
        self._bytes += size
        self.values.append(part)
        await self._channel.send_part(part)

    def release(self) -> None:
        """Ends the count of the parts."""
        if self._bytes:
            self._quota.give_back(self._account, self._bytes)
            self._bytes = 0


def collecting(
    function: Callable[..., Any], is_async: bool, channel: Channel, context: Context, quotas: PartQuotas
) -> Callable[..., Any]:
    """Returns a function that runs a generator function to its end, sends its parts, and returns the value.

    What it returns is async if the generator is; else it runs in a thread. Either ends after the next part if the call
    is cancelled.
    """
    loop = asyncio.get_running_loop()
    parts = _Parts(quotas, context.terms.caller.account, channel)

    async def collect(**arguments: Any) -> Any:
        try:
            async with contextlib.aclosing(function(**arguments)) as generator:
                async for part in generator:
                    await parts.add(part)
                    # Neither the generator nor a client that has left need have waited for anything.
                    await asyncio.sleep(0)
            return join_parts(parts.values)
        finally:
            parts.release()

    def collect_in_thread(**arguments: Any) -> Any:
        try:
            with contextlib.closing(function(**arguments)) as generator:
                for part in generator:
                    if context.cancelled:
                        break
                    context.wait(parts.add(part))
            return join_parts(parts.values)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(parts.release)

    return collect if is_async else collect_in_thread


def _part_bytes(part: Any) -> int:
    if isinstance(part, str):
        return _PART_BYTES + len(part)
    try:
        return _PART_BYTES + len(jsonrpc.encode(part))
    except (TypeError, ValueError, RecursionError):  # it cannot be sent, as the call will say in its end
        return _PART_BYTES


def join_parts(parts: list[Any]) -> Any:
    """Returns the value that parts make together: one text, if all are texts; else the list of them."""
    return "".join(parts) if all(isinstance(part, str) for part in parts) else parts
