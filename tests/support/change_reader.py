"""Clients that keep what they were sent, by root, and make every result whole from that and the reply.

Written from the promise, not from our source.
"""

import contextlib
import copy
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2

from deltamcp import DeltaServer
from deltamcp.deltas.delta import apply_delta
from deltamcp.results.encode import decode
from tests.support.era_client import EraClient, Result, era_client, first_text, result_meta, texts, token_cost
from tests.support.raw_client import META
from tests.support.result_readers import ProgramReader

ROOT_PATTERN = re.compile(r"sha256:[0-9a-f]{64}")
UNCHANGED = re.compile(
    r"Executed now: same ([\d,]+) (row|line|field|symbol)s?(?:, sent before)?; "
    r'(?:full: )?(?:continue (\S+)|since="")'
)
UNCHANGED_AS = re.compile(r"Executed now: same ([\d,]+) (row|line|field|symbol)s? as ([0-9a-f]{4,12})")
TERSE = re.compile(r"Executed now: same ([\d,]+) (row|line|field|symbol)s?(?:; (?:full: )?continue (\S+)| \((\S+)\))")
"""Where a great count leaves no room for more."""
# What a delta's first line says is told apart here by either wording; one test below holds the wording promised.
CHANGED = re.compile(r"Changed; (?:full: )?(?:continue (\S+)|since=\"\")")
CHANGED_SINCE = re.compile(r"Change[sd] since ([0-9a-f]{12}), now ([0-9a-f]{12}):")
HANDLE = re.compile(r"\[handle ([0-9A-Za-z]+)\.")
UNCHANGED_TOKENS = 16


@dataclass
class ReceivedResult:
    result: Result
    value: Any

    @property
    def outcome(self) -> str:
        return str(result_meta(self.result)["outcome"])

    @property
    def root(self) -> str:
        return str(result_meta(self.result)["root"])

    @property
    def digits(self) -> str:
        return self.root.removeprefix("sha256:")[:12]

    @property
    def handle(self) -> str:
        return str(result_meta(self.result)["handle"])

    @property
    def text(self) -> str:
        return first_text(self.result)


@dataclass
class ChangeReader:
    """Keeps what it was sent by its root, the last of each, and makes every result whole by that."""

    peer: EraClient
    held: dict[str, Any] = field(default_factory=dict)

    async def get(self, root: str | None = None, tool: str = "get", **arguments: Any) -> ReceivedResult:
        """One call, the root among its arguments."""
        if root is not None:
            arguments["pack_root"] = root
        return self.take(await self.peer.result_of(tool, **arguments), root)

    async def by_meta(self, root: str, tool: str = "get", **arguments: Any) -> ReceivedResult:
        """One call, the root in its `_meta`."""
        return self.take(await self.peer.result_of(tool, {"pack_root": root}, **arguments), root)

    def take(self, result: Result, root: str | None = None) -> ReceivedResult:
        said = result_meta(result)
        assert ROOT_PATTERN.fullmatch(said["root"]) and said["handle"], said
        if root == "reset":
            self.held.clear()
            assert said["outcome"] == "full"
        return ReceivedResult(result, self._value(result, said, root))

    def _value(self, result: Result, said: dict[str, Any], root: str | None) -> Any:
        if said["outcome"] == "full":
            value = self.held[said["root"]] = whole_value(result)
            return value
        assert said["outcome"] in ("unchanged", "delta"), said
        assert said["base"] in self.held, "a base that was never sent"
        if root is not None:
            assert root and said["base"].startswith("sha256:" + root.removeprefix("sha256:")), (
                "a base that was not named"
            )
        base = self.held[said["base"]]
        if said["outcome"] == "unchanged":
            assert said["base"] == said["root"]
            pattern = UNCHANGED if root is None else UNCHANGED_AS
            assert len(texts(result)) == 1 and pattern.fullmatch(first_text(result)), first_text(result)
            assert token_cost(result) <= UNCHANGED_TOKENS
            return base
        lengths = said.get("lengths")
        head, _, body = first_text(result)[: lengths[0] if lengths else None].partition("\n")
        if root is None:
            assert CHANGED.fullmatch(head), head
        else:
            found = CHANGED_SINCE.fullmatch(head)
            assert found, head
            assert said["base"].startswith("sha256:" + found[1]) and said["root"].startswith("sha256:" + found[2])
        value = self.held[said["root"]] = apply_delta(copy.deepcopy(base), body)
        return value


def whole_value(result: Result) -> Any:
    """The value of a result that is sent in full and fits."""
    shown = first_text(result)
    return shown if result_meta(result).get("form") == "text" else decode(shown)


async def read_by_handle(peer: EraClient, handle: str) -> Any:
    return await ProgramReader(peer, handle, 20_000).value()


@contextlib.asynccontextmanager
async def change_reader(server: DeltaServer, era: str = "modern") -> AsyncIterator[ChangeReader]:
    async with era_client(server, era) as peer:
        yield ChangeReader(peer)


# The same over HTTP


@dataclass
class HttpEraClient(EraClient):
    """A client of the HTTP door: stateless in the modern era, a session in the other."""

    http: httpx2.AsyncClient | None = None
    session: dict[str, str] = field(default_factory=dict)
    ids: int = 0

    async def _post(self, body: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
        assert self.http is not None
        accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        return await self.http.post("/mcp", content=json.dumps(body).encode(), headers={**accept, **headers})

    async def initialize(self) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        answer = await self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, {})
        self.session = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, self.session)

    async def cancel(self, id_: int) -> None:
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id_}}
        await self._post(note, self.session)

    async def ask(self, method: str, meta: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        self.ids += 1
        said = {**(META if self.era == "modern" else {}), **(meta or {})}
        body = {
            "jsonrpc": "2.0",
            "id": self.ids,
            "method": method,
            "params": {**params, **({"_meta": said} if said else {})},
        }
        headers = self.session
        if self.era == "modern":
            headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
            if name := params.get("name", params.get("uri")):
                headers["mcp-name"] = name
        answer = await self._post(body, headers)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = json.loads(answer.text.partition("data: ")[2] or answer.text)
        return found


@contextlib.asynccontextmanager
async def http_change_readers(server: DeltaServer) -> AsyncIterator[Callable[[str], Any]]:
    """Readers of one server, as many as are asked for."""
    async with server.engine.lifespan.running():
        transport = httpx2.ASGITransport(app=server.asgi())
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:

            async def reader(era: str) -> ChangeReader:
                peer = HttpEraClient(None, era, http)  # type: ignore[arg-type]
                if era == "handshake":
                    await peer.initialize()
                return ChangeReader(peer)

            yield reader
