"""Negotiates the protocol with a server: probes with `server/discover`, then falls back to `initialize`."""

import asyncio
import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from deltamcp.client import dialect
from deltamcp.client.connection import ClientConnection
from deltamcp.client.dialect import ClientDialect
from deltamcp.dialects import progressive_disclosure, tasks, versions
from deltamcp.errors import HttpStatusError, PeerError, UnreachableError
from deltamcp.values import JSON, SERVER_KEY, Era
from deltamcp.wire.codecs import CODECS, JSON_CODEC, Codec

ProtocolChoice: TypeAlias = Literal["auto", "modern", "handshake", "delta-mcp", "mcp-lite"]
"""The protocol that the client speaks; `auto` is whichever the server understands."""
Encoding: TypeAlias = Literal["json", "compact-json", "cbor"]

MCP_LITE = "mcp-lite"
"""The protocol of MCP-lite servers, which name no version of theirs."""
_OFFERED_ENCODINGS: Mapping[Encoding, tuple[str, ...]] = MappingProxyType(
    {"json": ("json",), "compact-json": ("json", "compact-json"), "cbor": ("json", "compact-json", "cbor")}
)
"""The encodings that the client offers to an original Delta-MCP server, by the one that it prefers."""
_PROBE_SECONDS = 5.0
"""MCP 2026-07-28, stdio: a server that does not answer the probe within a reasonable time is a handshake server."""


class ServerInfo(Struct, frozen=True, dict=True):
    """The server's name, version, protocol and capabilities, as negotiated."""

    name: str
    version: str
    era: Era
    protocol: str
    """The negotiated revision of MCP; `delta-mcp/0.2.0` for the original Delta-MCP, `mcp-lite` for MCP-lite."""
    capabilities: dict[str, JSON]
    instructions: str | None = None
    encoding: str = "json"
    raw: dict[str, JSON] = {}
    """The result of `server/discover` or `initialize`, as the server sent it."""

    @functools.cached_property
    def is_delta(self) -> bool:
        """Whether the server speaks the original Delta-MCP: results are JSON texts, and arguments select pages."""
        return versions.is_delta_mcp(self.protocol)

    @functools.cached_property
    def is_lite(self) -> bool:
        """Whether the server speaks MCP-lite."""
        return self.protocol == MCP_LITE

    @functools.cached_property
    def takes_tasks(self) -> bool:
        """Whether a client may ask for a task in place of a tool's result (MCP 2025-11-25, "Tasks")."""
        tasks: Any = self.capabilities.get("tasks") if self.era is Era.HANDSHAKE else None
        requests = tasks.get("requests") if isinstance(tasks, dict) else None
        tools = requests.get("tools") if isinstance(requests, dict) else None
        return isinstance(tools, dict) and "call" in tools

    @functools.cached_property
    def idempotency_key(self) -> str:
        """The key of `_meta` under which a call has a name, so that it is not run twice; empty if there is none."""
        if self.is_lite:
            return "idempotency_key"
        return tasks.IDEMPOTENCY_KEY if self.era is Era.MODERN else ""

    @functools.cached_property
    def progressive(self) -> dict[str, JSON] | None:
        """The server's settings of the progressive disclosure extension; None if it does not have the extension."""
        extensions = self.capabilities.get("extensions" if self.era is Era.MODERN else "experimental")
        settings = extensions.get(progressive_disclosure.NAME) if isinstance(extensions, dict) else None
        return settings if isinstance(settings, dict) else None

    @functools.cached_property
    def resolves_references(self) -> bool:
        """Whether the server says that `{"$result": handle}` in arguments stands for a result that it stores."""
        return (self.progressive or {}).get("references") is True

    def changes(self, kind: str) -> bool:
        """Whether the server notifies of changes to its list of `tools`, `prompts` or `resources`."""
        capability = self.capabilities.get(kind)
        return not self.is_lite and isinstance(capability, dict) and capability.get("listChanged") is True


class ClientProfile(Struct, frozen=True):
    """What the client declares about itself, and which protocol it offers."""

    info: dict[str, JSON]
    protocol_choice: ProtocolChoice
    encoding: Encoding
    progressive: bool
    elicits: bool
    samples: bool
    has_roots: bool
    forwards: bool = False
    """Whether it sends requests of others, and so passes on whatever these can be asked."""

    def choose_protocol(self, protocol_choice: ProtocolChoice) -> "ClientProfile":
        return replace(self, protocol_choice=protocol_choice)

    def capabilities(self, era: Era) -> dict[str, JSON]:
        if self.forwards:
            return dialect.forwarding_capabilities(era)
        return dialect.client_capabilities(
            era,
            elicits=self.elicits,
            samples=self.samples,
            has_roots=self.has_roots,
            progressive=self.progressive,
        )


class IntroductionRefusedError(UnreachableError):
    """The server answered `initialize` with an error, or with a protocol that is not known here."""


def known_choice(protocol: str) -> ProtocolChoice:
    """Returns how to begin with a server that spoke a protocol before; to be asked is no burden to a modern server."""
    if versions.is_delta_mcp(protocol):
        return "delta-mcp"
    return "handshake" if protocol in versions.HANDSHAKE else "auto"


class _NegotiatedProtocol(Struct, frozen=True):
    """The result of one negotiation; `negotiate` applies it to the connection."""

    server: ServerInfo
    dialect: ClientDialect
    codec: Codec = JSON_CODEC


async def negotiate(connection: ClientConnection, profile: ClientProfile, label: str) -> ServerInfo:
    """Negotiates protocol and encoding, applies them to the connection, and returns what the server says of itself.

    Raises:
        UnreachableError: client and server have no protocol in common; the text says what to do.
        ClientError: the connection broke.
    """
    negotiated = await _negotiate_protocol(connection, profile, label)
    connection.dialect, connection.link.codec = negotiated.dialect, negotiated.codec
    connection.takes_log_level = negotiated.server.era is Era.HANDSHAKE and "logging" in negotiated.server.capabilities
    return replace(negotiated.server, encoding=negotiated.codec.name)


async def _negotiate_protocol(connection: ClientConnection, profile: ClientProfile, label: str) -> _NegotiatedProtocol:
    if profile.protocol_choice == MCP_LITE:
        return await _ask_lite_server(connection, profile)
    if profile.protocol_choice in ("handshake", "delta-mcp"):
        return await _initialize(connection, profile, label, profile.protocol_choice == "delta-mcp")
    found = await _probe_modern(connection, profile, label)
    if isinstance(found, _NegotiatedProtocol):
        return found
    if profile.protocol_choice == "modern":
        raise IntroductionRefusedError(f"{label} does not speak MCP {versions.MODERN[0]}: {found}")
    return await _initialize(connection, profile, label, dialect.is_delta_refusal(found))


async def _probe_modern(connection: ClientConnection, profile: ClientProfile, label: str) -> _NegotiatedProtocol | str:
    """Returns the negotiated protocol, or why the server is not of the modern era.

    If the server does not answer the probe in time, `initialize` runs beside it and the first answer counts.
    """
    probing = asyncio.ensure_future(_discover(connection, profile, label))
    initializing: asyncio.Future[_NegotiatedProtocol] | None = None
    try:
        await asyncio.wait([probing], timeout=None if profile.protocol_choice == "modern" else _PROBE_SECONDS)
        if not probing.done():
            # The server is of the handshake era and ignores the probe, or of either era and slow to start.
            initializing = asyncio.ensure_future(_initialize(connection, profile, label, as_delta=False))
            await asyncio.wait([probing, initializing], return_when=asyncio.FIRST_COMPLETED)
        found = await probing if initializing is None or probing.done() else "it says nothing"
        return found if initializing is None or isinstance(found, _NegotiatedProtocol) else await initializing
    finally:
        tasks = [task for task in (probing, initializing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _discover(connection: ClientConnection, profile: ClientProfile, label: str) -> _NegotiatedProtocol | str:
    """Sends `server/discover`; returns the negotiated protocol, or the error of a server that is not modern."""

    async def discover(version: str) -> dict[str, JSON]:
        modern_dialect = dialect.modern_dialect(version, profile.info, profile.capabilities(Era.MODERN))
        return await connection.request("server/discover", {}, {}, dialect=modern_dialect)

    try:
        try:
            result = await discover(versions.MODERN[0])
        except PeerError as error:
            supported = dialect.supported_versions(error.code, error.data)
            common = [version for version in versions.MODERN if version in supported]
            if supported and not common and not set(supported) & set(versions.HANDSHAKE):
                raise UnreachableError(
                    f"{label} speaks only {', '.join(supported)[:100]}, which is not known here."
                ) from None
            if not common:
                return str(error)
            # MCP 2026-07-28: a server that refuses a version names others; the client sends the request again in one.
            result = await discover(common[0])
    except (PeerError, HttpStatusError) as error:
        return str(error)
    return _parse_discovery(connection, profile, result)


def _parse_discovery(
    connection: ClientConnection, profile: ClientProfile, result: dict[str, JSON]
) -> _NegotiatedProtocol | str:
    supported = result.get("supportedVersions")
    common = [version for version in versions.MODERN if not isinstance(supported, list) or version in supported]
    if not common:
        return "it speaks no revision that is known here"
    meta: Any = result.get("_meta")
    server_info = meta.get(SERVER_KEY) if isinstance(meta, dict) else None
    info = _name_and_version(server_info if isinstance(server_info, dict) else result.get("serverInfo"))
    server = _server_info(result, info, Era.MODERN, common[0])
    encodings = (server.progressive or {}).get("encodings")
    # Without `initialize` only HTTP can give the encoding of each message, in a header.
    is_agreed = connection.link.carries_headers and isinstance(encodings, list) and profile.encoding in encodings
    modern_dialect = dialect.modern_dialect(common[0], profile.info, profile.capabilities(Era.MODERN))
    return _NegotiatedProtocol(server, modern_dialect, CODECS[profile.encoding] if is_agreed else JSON_CODEC)


async def _ask_lite_server(connection: ClientConnection, profile: ClientProfile) -> _NegotiatedProtocol:
    """Asks an MCP-lite server what it has beyond MCP-lite, which knows no such question; others have tools only."""
    lite_dialect = dialect.mcp_lite_dialect(profile.info, profile.capabilities(Era.MODERN))
    try:
        result = await connection.request("server/discover", {}, {}, dialect=lite_dialect)
    except PeerError:
        result = {"capabilities": {"tools": {}}}
    meta: Any = result.get("_meta")
    info = _name_and_version(meta.get(SERVER_KEY) if isinstance(meta, dict) else None)
    return _NegotiatedProtocol(_server_info(result, info, Era.MODERN, MCP_LITE), lite_dialect)


async def _initialize(
    connection: ClientConnection, profile: ClientProfile, label: str, as_delta: bool
) -> _NegotiatedProtocol:
    params = dialect.initialize_params(
        profile.info, profile.capabilities(Era.HANDSHAKE), as_delta, profile.encoding, profile.progressive
    )
    try:
        result = await connection.request("initialize", params, {}, dialect=dialect.UNNEGOTIATED)
    except PeerError as error:
        raise IntroductionRefusedError(f"{label} refused the introduction: {str(error)[:300]}") from None
    version = result.get("protocolVersion")
    codec = JSON_CODEC
    if isinstance(version, str) and as_delta and versions.is_delta_mcp(version):
        agreed = dialect.handshake_dialect(versions.DELTA_MCP_BASELINE, is_delta=True)
        encoding: Any = result.get("encoding")
        name = str(encoding.get("format")) if isinstance(encoding, dict) else ""
        if name in CODECS and name not in _OFFERED_ENCODINGS[profile.encoding]:
            raise UnreachableError(f"{label} writes messages as {name}, which was not offered to it.")
        codec = CODECS.get(name, JSON_CODEC)
        connection.link.codec = codec  # already `notifications/initialized` is in this encoding
    elif version in versions.HANDSHAKE:
        agreed = dialect.handshake_dialect(str(version))
    else:
        raise IntroductionRefusedError(
            f"{label} speaks {version!r:.40}, which is no revision of MCP that is known here."
        )
    await connection.notify("notifications/initialized", {}, agreed)
    server = _server_info(result, _name_and_version(result.get("serverInfo")), Era.HANDSHAKE, str(version))
    return _NegotiatedProtocol(server, agreed, codec)


def _name_and_version(info: Any) -> tuple[str, str]:
    name, version = (info.get("name"), info.get("version")) if isinstance(info, dict) else (None, None)
    return (name if isinstance(name, str) else "unnamed"), (version if isinstance(version, str) else "")


def _server_info(result: Mapping[str, Any], info: tuple[str, str], era: Era, protocol: str) -> ServerInfo:
    capabilities, instructions = result.get("capabilities"), result.get("instructions")
    return ServerInfo(
        *info,
        era,
        protocol,
        capabilities if isinstance(capabilities, dict) else {},
        instructions if isinstance(instructions, str) else None,
        raw=dict(result),
    )
