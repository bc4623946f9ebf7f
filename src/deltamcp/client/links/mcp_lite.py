"""The link to an MCP-lite server over HTTP: JSON-RPC to the paths below its base address."""

from collections.abc import Mapping
from typing import Any

from deltamcp.client.links.http import HttpLink
from deltamcp.client.links.link import NO_HEADERS, TokenSource, UnaddressedError, read_messages
from deltamcp.errors import HttpStatusError
from deltamcp.limits import Limits
from deltamcp.values import JSON, Malformed, Message, Notification, RequestId, Response
from deltamcp.wire.codecs import JSON_CODEC, Codec
from deltamcp.wire.sse import SseEvent

_LIST_PATHS, _CALL_PATHS = ("tools", "listtools"), ("rpc", "calltools")
"""MCP-lite names two paths for each of its endpoints (4.2 and Appendix A); a server may have one of them."""
_STREAM_HEADERS = {"accept": "text/event-stream, application/json;q=0.5"}
"""A server without streams answers with JSON."""

_MAX_HEARTBEAT_BYTES = 16 * 1024


class McpLiteLink(HttpLink):
    """Posts each request to the path for its method, and reads what comes back as JSON-RPC."""

    def __init__(
        self, label: str, url: str, headers: Mapping[str, str], tokens: TokenSource | None, limits: Limits
    ) -> None:
        super().__init__(label, url, headers, tokens, limits)
        self._base = url.rstrip("/")
        self._paths: dict[tuple[str, str], str] = {}
        """The path that the server has, of each pair of which it has answered to one."""

    async def send(
        self, message: dict[str, JSON], headers: Mapping[str, str] = NO_HEADERS, ends_at: float | None = None
    ) -> None:
        method = message.get("method")
        if "id" not in message or method is None:
            return  # MCP-lite has neither notifications of clients nor requests of servers
        if "progressToken" in message.get("params", {}).get("_meta", {}):
            headers = {**headers, **_STREAM_HEADERS}
        pair = _LIST_PATHS if method == "tools/list" else _CALL_PATHS
        known = self._paths.get(pair)
        if known is not None or method == "tools/call":
            await self.send_to(f"{self._base}/{known or pair[0]}", message, headers)
            return
        try:
            await self.send_to(f"{self._base}/{pair[0]}", message, headers)
            self._paths[pair] = pair[0]
        except HttpStatusError as error:
            try:
                await self.send_to(f"{self._base}/{pair[1]}", message, headers)
            except HttpStatusError:
                raise error from None
            self._paths[pair] = pair[1]

    def read_body(self, body: bytes, codec: Codec, id_: RequestId | None) -> list[Message | UnaddressedError]:
        """Reads a response; a list of tools is also in the two forms that MCP-lite has besides JSON-RPC."""
        messages = super().read_body(body, codec, id_)
        if id_ is None or not all(isinstance(message, Malformed) for message in messages):
            return messages
        try:
            decoded: Any = codec.decode(body)
        except ValueError:
            return messages
        if isinstance(decoded, list):
            return [Response(id_, {"tools": decoded})]
        return [Response(id_, decoded)] if isinstance(decoded, dict) and "tools" in decoded else messages

    def read_event(self, event: SseEvent, id_: RequestId | None) -> list[Message | UnaddressedError]:
        """Reads an event: `done` and `error` are responses.

        A `message` is a part of the result, which `done` has again. A `heartbeat` of our servers may have the progress
        of the call; what others have in it is ignored.
        """
        if event.kind in ("done", "error"):
            return read_messages(event.data, JSON_CODEC, self._limits)
        if event.kind != "heartbeat" or len(event.data) > _MAX_HEARTBEAT_BYTES:
            return []
        try:
            progress: Any = JSON_CODEC.decode(event.data)
        except ValueError:
            return []
        is_progress = isinstance(progress, dict) and "progress" in progress and id_ is not None
        return [Notification("notifications/progress", {**progress, "progressToken": id_})] if is_progress else []
