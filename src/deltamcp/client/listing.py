"""What a server lists: fetched when it is needed, in as few requests as the server allows, and believed for a while."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from deltamcp.client.definitions import Definition, Definitions, Tool
from deltamcp.client.reaching import Reaching
from deltamcp.errors import FAULTS, ClientError, Fault, PeerError
from deltamcp.values import JSON, Era

logger = logging.getLogger("deltamcp")

_PAGES = 10_000
"""Of one list; a server that never comes to an end is not followed for ever."""
_FOREVER = float("inf")
_LONGEST_TTL = 10**12
_NEAREST = 3


class Listing:
    """The lists of one server."""

    def __init__(self, reaching: Reaching, cache_seconds: float) -> None:
        """`cache_seconds` is how long a list is believed of who neither says so nor tells of changes."""
        self._reaching = reaching
        self._cache_seconds = cache_seconds
        self._tools = Definitions()
        self._fetching = asyncio.Lock()
        self.listens = False
        """Whether changes are heard of."""

    def known(self, name: str) -> Definition | None:
        return self._tools.known(name)

    def is_believed(self, name: str) -> bool:
        return self._tools.believed(name) is not None

    def is_current(self, name: str) -> bool:
        """Whether what is known of a tool has neither been spoken against nor grown old."""
        return self.is_believed(name) and self._tools.is_fresh(asyncio.get_running_loop().time())

    def doubt(self) -> None:
        """The tools have changed, or may have."""
        self._tools.doubt()

    async def index(self) -> list[Tool]:
        await self._refreshed()
        return list(self._tools.index or ())

    async def definition(self, name: str) -> Definition | None:
        """One that can be believed; None where the server has none of this name."""
        found = self._tools.believed(name)
        if found is not None or "tools" not in self._reaching.server.capabilities:
            return found
        try:
            return (await self.definitions((name,)))[0]
        except (UnknownToolError, PeerError):
            return None

    async def definitions(self, names: Sequence[str]) -> list[Definition]:
        """
        Raises:
            UnknownToolError: there is no such tool.
        """
        if not self._in_lines:
            if not names or not all(map(self.is_believed, names)):
                await self._refreshed(anew=bool(names))
            return [self._found(name) for name in names or [tool.name for tool in self._tools.index or ()]]
        if not names:
            names = [tool.name for tool in await self.index()]
        try:
            async with self._fetching:
                if self._tools.has_doubted and self._has_manifest:
                    self._tools.vouched(await self.every("tools/manifest", "entries"))
                await self._describe([name for name in dict.fromkeys(names) if not self.is_believed(name)])
        except UnknownToolError as error:
            await self._refreshed()  # to know what there is instead
            raise self._unknown(error.tool) from None
        return [self._found(name) for name in names]

    @property
    def _in_lines(self) -> bool:
        """Whether this server lists names and summaries, and describes on request."""
        server = self._reaching.server
        tools = server.capabilities.get("tools")
        if server.is_delta:
            return self._reaching.progressive and isinstance(tools, dict) and bool(tools.get("progressiveDisclosure"))
        return self._reaching.progressive and server.progressive is not None

    @property
    def _has_manifest(self) -> bool:
        return (self._reaching.server.progressive or {}).get("manifest") is True

    async def _describe(self, names: list[str]) -> None:
        settings: Any = (self._reaching.server.progressive or {}).get("describe")
        most = settings.get("maxNames") if isinstance(settings, dict) else None
        if not isinstance(most, int) or most < 1:
            # The original Delta-MCP describes one at a time.
            self._tools.described(await asyncio.gather(*map(self._describe_one, names)))
            return
        for start in range(0, len(names), most):
            asked = names[start : start + most]
            try:
                result = await self._reaching.ask("tools/describe", {"names": asked})
            except PeerError as error:
                unknown = error.data.get("unknownNames") if isinstance(error.data, dict) else None
                if isinstance(unknown, list) and unknown:
                    raise self._unknown(str(unknown[0])) from None
                raise
            tools = result.get("tools")
            self._tools.described(tools if isinstance(tools, list) else [])

    async def _describe_one(self, name: str) -> dict[str, JSON]:
        try:
            return await self._reaching.ask("tools/describe", {"name": name})
        except PeerError as error:
            if error.code != FAULTS[Fault.NOT_FOUND].handshake:
                raise
            raise self._unknown(name) from None

    def _found(self, name: str) -> Definition:
        found = self._tools.known(name)
        if found is None:
            raise self._unknown(name)
        return found

    def _unknown(self, name: str) -> "UnknownToolError":
        from rapidfuzz import process

        listed = [tool.name for tool in self._tools.index or ()]
        near = [one for one, *_ in process.extract(name, listed, limit=_NEAREST, score_cutoff=65)]
        if near:
            return UnknownToolError(name, f"There is no tool {name!r}; did you mean {' or '.join(near)}?")
        return UnknownToolError(name, f"There is no tool {name!r} among the {len(listed)} there are.")

    async def _refreshed(self, anew: bool = False) -> None:
        now = asyncio.get_running_loop().time
        if self._tools.is_fresh(now()) and not anew:
            return
        async with self._fetching:
            if self._tools.is_fresh(now()):  # somebody else has waited for it
                return
            ages: list[float] = []
            items = await self.every("tools/list", "tools", ages) if self._lists else []
            lines = self._in_lines and not all(isinstance(item, dict) and "inputSchema" in item for item in items)
            until = now() + min(ages, default=_FOREVER)
            for reason in self._tools.listed(items, until, not lines, self._reaching.mirrors):
                logger.warning("a tool was left out of the list: %s", reason)

    @property
    def _lists(self) -> bool:
        return "tools" in self._reaching.server.capabilities

    async def every(self, method: str, key: str, ages: list[float] | None = None) -> list[dict[str, JSON]]:
        """All pages of a list, as they came; `ages` gets the seconds each may be believed.

        Raises:
            ClientError: the list has no end.
        """
        items: list[dict[str, JSON]] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(_PAGES):
            result = await self._reaching.ask(method, {} if cursor is None else {"cursor": cursor})
            page = result.get(key)
            items += page if isinstance(page, list) else []
            if ages is not None:
                ages.append(self._believable(result))
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                return items
            if cursor in seen:
                break
            seen.add(cursor)
        raise ClientError(f"{method} has no end: its pages lead back to themselves.")

    def _believable(self, result: dict[str, JSON]) -> float:
        """Seconds. MCP 2026-07-28 "Caching": `ttlMs`; and as long as nothing else is heard, where it would be."""
        told, server = result.get("ttlMs"), self._reaching.server
        if self.listens and server.changes("tools"):
            return _FOREVER
        if isinstance(told, int | float) and server.era is Era.MODERN:
            return max(0.0, min(told, _LONGEST_TTL) / 1000)
        return 0.0 if server.era is Era.MODERN else self._cache_seconds

    async def continuing(self) -> str:
        """The tool that reads on in results."""
        names = [tool.name for tool in await self.index()]
        return next((name for name in names if name == "continue" or name.endswith("_continue")), "continue")


class UnknownToolError(ClientError):
    """The server has no tool of this name."""

    def __init__(self, tool: str, message: str) -> None:
        super().__init__(message)
        self.tool = tool
