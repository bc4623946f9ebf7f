"""The channels of calls over gRPC: of a single response, and of a stream of them."""

import asyncio
import logging
from typing import Any

from deltamcp.context import Channel, ProgressReport
from deltamcp.errors import ToolError
from deltamcp.transports.grpc.admission import GrpcRequest
from deltamcp.transports.grpc.responses import COUNTED_BYTES, GrpcEncoder, ResponseForm
from deltamcp.transports.quota import UNREAD_PARTS
from deltamcp.values import JSON

logger = logging.getLogger("deltamcp.grpc")


class GrpcReply(Channel):
    """The `Channel` of a call with one response. gRPC itself cancels the call's task when the client goes away."""

    unasked = "MCP-lite has no requests to clients."

    def __init__(self, request: GrpcRequest) -> None:
        self.fairness_key = request.caller.account
        self.headers = request.headers


class GrpcStreamReply(GrpcReply):
    """The `Channel` of a call that sends what it makes at once.

    A write returns when gRPC has room for the next one, so that a slow reader makes the tool wait.
    """

    takes_every_progress = True

    def __init__(
        self, request: GrpcRequest, context: Any, form: ResponseForm, encoder: GrpcEncoder, send_seconds: float
    ) -> None:
        """Large parts count for the caller until they are sent; each waits `send_seconds` for its turn."""
        super().__init__(request)
        self._account = request.caller.account
        self._encoder = encoder
        self._send_seconds = send_seconds
        self._context = context
        self._form = form
        self._lock = asyncio.Lock()  # gRPC takes one write at a time, and a tool may report from several tasks
        self._task = asyncio.current_task()

    async def report(self, progress: ProgressReport) -> None:
        await self.send({"progress": progress.fields()})

    async def send_part(self, part: JSON) -> None:
        await self.send({"partial": part})

    async def send(self, result: dict[str, JSON]) -> None:
        """Sends a response without `meta`; cancels the call if the client is gone."""
        account, unsent = self._account, self._encoder.unsent
        encoded = await self._encoder.write_part(account, result, self._form, self._send_seconds)
        if encoded is not None and len(encoded) <= COUNTED_BYTES:
            await self._write(encoded)
            return
        size = 0 if encoded is None else min(len(encoded), unsent.share)
        if encoded is None or not await unsent.take_in_turn(account, size, self._send_seconds):
            raise ToolError(UNREAD_PARTS)
        try:
            await self._write(encoded)
        finally:
            unsent.give_back(account, size)

    async def _write(self, encoded: bytes) -> None:
        async with self._lock:
            try:
                await self._context.write(encoded)
            except Exception as error:  # gRPC has several, and cancels the task itself a little later
                logger.debug("a response cannot be sent: %s", error)
                assert self._task is not None, "calls are served in tasks"
                self._task.cancel()
                await asyncio.sleep(0)  # where the cancellation arrives, unless another task of the tool is here
