"""Writes the messages of gRPC responses: large ones in a thread, by accounts in turn."""

from msgspec import Struct

from deltamcp.dialects.mcp_lite import Stamp
from deltamcp.dialects.mcp_lite_bodies import LiteResponse
from deltamcp.limits import Limits
from deltamcp.runtime.quota import Quota
from deltamcp.runtime.threads import Threads
from deltamcp.transports.grpc.responses import ResponseForm, encode_part, encode_response
from deltamcp.values import JSON
from deltamcp.wire.value_sizes import estimate_bytes, least_bytes

COUNTED_BYTES = 64 * 1024
"""Responses up to this size need not be counted; a client's flow control has as much on the way."""
_BYTES_PER_VALUE_AT_ONCE = 64
"""A response of a thousand values is written on the event loop, in about 1 ms."""
_BYTES_PER_VALUE = 8
"""What a small value takes in a message, about."""


class GrpcEncoder:
    """Writes the responses of one server. Large ones count for their accounts from before they are written."""

    def __init__(self, limits: Limits) -> None:
        self.unsent = Quota(limits.response_bytes, limits.account_share)
        """Bytes of the responses that wait to be written, or that clients have yet to read."""
        self._threads = Threads(1)

    async def write_response(
        self, account: str, response: LiteResponse, stamp: Stamp, form: ResponseForm
    ) -> bytes | None:
        """Returns a `ToolResponse` with `meta`; None if too many large responses of the account wait.

        Raises:
            ValueError: the result contains a value that JSON cannot express.
        """
        if _is_small(response):
            return encode_response(response, stamp, form)
        size = self._estimate(response, form)
        if not self.unsent.take(account, size):
            return None
        arguments = {"response": response, "stamp": stamp, "form": form}
        try:
            encoded: bytes = await self._threads.run(account, encode_response, arguments)
        finally:
            self.unsent.give_back(account, size)
        return encoded

    async def write_part(
        self, account: str, result: dict[str, JSON], form: ResponseForm, seconds: float
    ) -> bytes | None:
        """Returns a `ToolResponse` without `meta`; None if the account's turn did not come within `seconds`.

        Raises:
            ValueError: it contains a value that JSON cannot express, is too deep or too large.
        """
        if _is_small(result):
            return encode_part(result, form)
        size = self._estimate(result, form)
        if not await self.unsent.take_in_turn(account, size, seconds):
            return None
        try:
            encoded: bytes = await self._threads.run(account, encode_part, {"result": result, "form": form})
        finally:
            self.unsent.give_back(account, size)
        return encoded

    def _estimate(self, value: LiteResponse | dict[str, JSON], form: ResponseForm) -> int:
        return max(1, min(estimate_bytes(value, _BYTES_PER_VALUE), form.max_bytes, self.unsent.share))


def _is_small(value: Struct | dict[str, JSON]) -> bool:
    return least_bytes(value, _BYTES_PER_VALUE_AT_ONCE, COUNTED_BYTES) < COUNTED_BYTES
