"""How each protocol asks for a call that the server goes on with, answers its questions, and cancels it."""

from typing import Protocol

from deltamcp.client.call_state import CallState, ended_state, parse_task
from deltamcp.client.connector import Connector
from deltamcp.errors import ClientError
from deltamcp.values import JSON, Era

_REPLY_SECONDS = 30.0
"""How long an answer may take beyond the time that the client asks the server to wait."""


class PromiseProtocol(Protocol):
    """Asks one server for calls by their tokens."""

    waits: bool
    """Whether `poll` has the server wait for a change."""

    async def poll(self, token: str, wait_seconds: float) -> CallState:
        """Returns the state of a call, with its result if it has ended; questions of it may be answered meanwhile.

        Raises:
            PeerError: the server knows no such call, or the call ended with this error.
        """

    async def status(self, token: str) -> CallState:
        """Returns the state of a call at once, perhaps without its result."""

    async def answer(self, token: str, responses: dict[str, JSON]) -> CallState | None:
        """Answers questions of a call; returns its state if the server tells that."""

    async def cancel(self, token: str) -> CallState | None:
        """Has the server cancel a call; returns its state if the server tells that."""


class RedeemedPromises:
    """Promises of MCP-lite, whose tool `redeem` does everything."""

    waits = True

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    async def poll(self, token: str, wait_seconds: float) -> CallState:
        return await self._redeem(token, {"wait_ms": round(wait_seconds * 1000)}, timeout=wait_seconds + _REPLY_SECONDS)

    async def status(self, token: str) -> CallState:
        return await self._redeem(token, {"action": "status"})

    async def answer(self, token: str, responses: dict[str, JSON]) -> CallState:
        return await self._redeem(token, {"input": responses})

    async def cancel(self, token: str) -> CallState:
        return await self._redeem(token, {"action": "cancel"})

    async def _redeem(self, token: str, options: dict[str, JSON], timeout: float = _REPLY_SECONDS) -> CallState:
        params = {"name": "redeem", "arguments": {"promise": token, **options}}
        result = await self._connector.request("tools/call", params, timeout=timeout)
        return parse_task(result) if result.get("resultType") == "task" else ended_state(result, token)


class ModernTasks:
    """Tasks of MCP 2026-07-28 (SEP-2663): `tasks/get` has everything, and answers at once."""

    waits = False

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    async def poll(self, token: str, wait_seconds: float) -> CallState:
        return parse_task(await self._connector.request("tasks/get", {"taskId": token}, timeout=_REPLY_SECONDS))

    async def status(self, token: str) -> CallState:
        return await self.poll(token, 0.0)

    async def answer(self, token: str, responses: dict[str, JSON]) -> None:
        params = {"taskId": token, "inputResponses": responses}
        await self._connector.request("tasks/update", params, timeout=_REPLY_SECONDS)

    async def cancel(self, token: str) -> None:
        await self._connector.request("tasks/cancel", {"taskId": token}, timeout=_REPLY_SECONDS)


class HandshakeTasks:
    """Tasks of MCP 2025-11-25: the result is apart from the status, and the server asks while it is waited for."""

    waits = False

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    async def poll(self, token: str, wait_seconds: float) -> CallState:
        state = await self.status(token)
        if state.status in ("input_required", "completed", "failed"):
            # It waits until the call has ended, and the server asks meanwhile (2025-11-25, "Input Required Status").
            return ended_state(await self._connector.request("tasks/result", {"taskId": token}), token)
        return state

    async def status(self, token: str) -> CallState:
        return parse_task(await self._connector.request("tasks/get", {"taskId": token}, timeout=_REPLY_SECONDS))

    async def answer(self, token: str, responses: dict[str, JSON]) -> None:
        raise AssertionError("tasks of 2025-11-25 tell no questions")

    async def cancel(self, token: str) -> CallState:
        return parse_task(await self._connector.request("tasks/cancel", {"taskId": token}, timeout=_REPLY_SECONDS))


def promise_protocol(connector: Connector) -> PromiseProtocol:
    """Returns the protocol by which the server goes on with calls.

    Raises:
        ClientError: the server speaks a protocol without that.
    """
    server = connector.server
    if server.is_lite:
        return RedeemedPromises(connector)
    if server.is_delta:
        raise ClientError("The server speaks the original Delta-MCP, in which a call ends with its reply.")
    return ModernTasks(connector) if server.era is Era.MODERN else HandshakeTasks(connector)
