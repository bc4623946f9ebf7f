"""Another MCP server behind an operation: a small client of the handshake era."""

import asyncio
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import UNSET

from deltamcp.catalog.operations_file.document import Upstream
from deltamcp.dialects import versions
from deltamcp.errors import ToolError
from deltamcp.sources.environment import filled, revealed
from deltamcp.sources.mcp_link import HttpLink, SessionLostError, StdioLink
from deltamcp.sources.secrets import Secrets
from deltamcp.values import (
    JSON,
    Annotations,
    Audio,
    BlobResource,
    Content,
    EmbeddedResource,
    Image,
    ResourceLink,
    Response,
    Text,
    TextResource,
    ToolResult,
)
from deltamcp.wire import jsonrpc

logger = logging.getLogger("deltamcp")

Link: TypeAlias = StdioLink | HttpLink
_Unnested: TypeAlias = Text | Image | Audio | ResourceLink

_START_SECONDS = 30.0
_FAREWELL_SECONDS = 2.0
_ERROR_CHARS = 500
_INHERITED = re.compile(
    "HOME|LANG|LC_ALL|LOGNAME|PATH|SHELL|TERM|TMPDIR|USER|"
    "APPDATA|COMSPEC|LOCALAPPDATA|PATHEXT|SYSTEMDRIVE|SYSTEMROOT|TEMP|TMP|USERPROFILE",
    re.IGNORECASE,
)
"""What a server we start sees of our environment: what programs need to run, and nobody's secrets."""


class McpUpstream:
    """One server, reached or started with the first call, and again after it ended."""

    def __init__(self, name: str, upstream: Upstream, environment: Mapping[str, str]) -> None:
        """
        Raises:
            ConfigurationError: a variable is not set.
        """
        self._name = name
        self._who = f"The server {name} behind this operation"
        self._command = [filled(word, environment) for word in (upstream.command or "", *upstream.args)]
        self._environment = {key: text for key, text in environment.items() if _INHERITED.fullmatch(key)}
        self._environment |= {key: filled(text, environment) for key, text in upstream.env.items()}
        self._cwd = upstream.cwd
        self._url = None if upstream.url is None else filled(upstream.url, environment)
        self._headers = {key.lower(): filled(text, environment).strip() for key, text in upstream.headers.items()}
        texts = [upstream.command or "", *upstream.args, upstream.url or "", *upstream.env.values()]
        self._secrets = Secrets(revealed([*texts, *upstream.headers.values()], environment))
        self._connecting = asyncio.Lock()
        self._link: Link | None = None
        self._farewells: set[asyncio.Task[None]] = set()

    async def call(self, tool: str, arguments: dict[str, JSON], timeout: float | None = None) -> ToolResult:
        """What the server's tool gave, its content as it came. Calls may run side by side.

        Raises:
            ToolError: the server refused, ended, cannot be reached, or took longer than `timeout` seconds.
        """
        params = {"name": tool, "arguments": arguments}
        try:
            async with asyncio.timeout(timeout):
                try:
                    result = await self._ask(await self._connected(), "tools/call", params)
                except SessionLostError:
                    result = await self._ask(await self._connected(), "tools/call", params)
        except TimeoutError:
            raise ToolError(f"{self._who} took longer than {timeout:g} s; try again later.") from None
        except SessionLostError:
            raise ToolError(f"{self._who} forgets its sessions; try again later.") from None
        if not isinstance(result, dict):
            raise ToolError(f"{self._who} gave something that is not a tool's result.")
        return _tool_result(result)

    async def close(self) -> None:
        """Ends the connection, and the process where there is one; a later call starts anew."""
        async with self._connecting:
            await asyncio.gather(*self._farewells)
            await self._drop()

    async def _ask(self, link: Link, method: str, params: dict[str, JSON]) -> JSON:
        id_, answer = link.inbox.expect()
        try:
            await link.send(jsonrpc.request(id_, method, params), id_)
            return self._unwrapped(await answer)
        except asyncio.CancelledError:
            if link is self._link:
                farewell = asyncio.create_task(_farewell(link, id_))
                self._farewells.add(farewell)
                farewell.add_done_callback(self._farewells.discard)
            raise
        finally:
            link.inbox.forget(id_)

    async def _connected(self) -> Link:
        async with self._connecting:
            if self._link is not None and not self._link.ended:
                return self._link
            await self._drop()
            link = self._new_link()
            try:
                async with asyncio.timeout(_START_SECONDS):
                    await link.start()
                    await self._introduce(link)
            except (OSError, TimeoutError) as error:
                await link.close()
                logger.warning("%s did not start: %s", self._name, error or "it said nothing")
                raise ToolError(f"{self._who} did not start; try again later.") from None
            except BaseException:
                await link.close()
                raise
            self._link = link
            return link

    def _new_link(self) -> Link:
        if self._url is not None:
            return HttpLink(self._name, self._url, self._headers)
        return StdioLink(self._name, self._command, self._environment, self._cwd)

    async def _introduce(self, link: Link) -> None:
        about = {"name": "delta-mcp", "version": metadata.version("delta-mcp")}
        params = {"protocolVersion": versions.HANDSHAKE[0], "capabilities": {}, "clientInfo": about}
        agreed = await self._ask(link, "initialize", params)
        version = agreed.get("protocolVersion") if isinstance(agreed, dict) else None
        if version not in versions.HANDSHAKE:
            raise ToolError(f"{self._who} speaks no revision of MCP that is known here.")
        link.version = version
        await link.send(jsonrpc.notification("notifications/initialized", {}))

    async def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    def _unwrapped(self, response: Response) -> JSON:
        if response.error is not None:
            told = str(response.error.get("message") or "It failed and did not say why.")
            raise ToolError(self._secrets.left_out(told)[:_ERROR_CHARS])
        return response.result


async def _farewell(link: Link, id_: int) -> None:
    with suppress(ToolError, SessionLostError, TimeoutError):
        async with asyncio.timeout(_FAREWELL_SECONDS):
            await link.send(jsonrpc.notification("notifications/cancelled", {"requestId": id_}))


def _tool_result(result: dict[str, JSON]) -> ToolResult:
    content, meta = result.get("content"), result.get("_meta")
    return ToolResult(
        [_content(item) for item in content] if isinstance(content, list) else [],
        structured=result.get("structuredContent", UNSET),
        is_error=result.get("isError") is True,
        meta=meta if isinstance(meta, dict) else None,
    )


def _content(item: Any) -> Content:
    """One of ours where that keeps every part of it, else the object as it came, which is written as it stands."""
    if not isinstance(item, dict):
        return Text(jsonrpc.encode(item).decode())
    try:
        made = _embedded(item) if item.get("type") == "resource" else msgspec.convert(item, _Unnested)
    except (msgspec.ValidationError, KeyError, TypeError):
        return cast(Content, item)
    return made if msgspec.to_builtins(made) == item else cast(Content, item)


def _embedded(item: dict[str, JSON]) -> EmbeddedResource:
    held = item["resource"]
    return EmbeddedResource(
        msgspec.convert(held, BlobResource) if "blob" in held else msgspec.convert(held, TextResource),
        msgspec.convert(item.get("annotations"), Annotations | None),
        item.get("_meta"),
    )
