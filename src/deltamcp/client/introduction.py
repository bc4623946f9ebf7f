"""The first words with a server: which era it is of, what it can do. Probe, then fall back."""

import asyncio
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from deltamcp.client import speech
from deltamcp.client.conversation import Conversation
from deltamcp.client.speech import Speech
from deltamcp.dialects import modern, progressive_disclosure, versions
from deltamcp.errors import HttpStatusError, PeerError, UnreachableError
from deltamcp.values import JSON, Era
from deltamcp.wire.codecs import CODECS, JSON_CODEC, Codec

Spoken: TypeAlias = Literal["auto", "modern", "handshake", "delta-mcp"]
"""What is spoken to a server: whatever it understands, or one thing only."""
Encoding: TypeAlias = Literal["json", "compact-json", "cbor"]

_PROBE_SECONDS = 5.0
"""MCP 2026-07-28, stdio: a server that does not answer the probe within a reasonable time is of the handshake era."""


class ServerInfo(Struct, frozen=True):
    """Who answers, and what it can do."""

    name: str
    version: str
    era: Era
    protocol: str
    """The revision that is spoken; `delta-mcp/0.2.0` for that dialect."""
    capabilities: dict[str, JSON]
    instructions: str | None = None
    encoding: str = "json"
    raw: dict[str, JSON] = {}
    """The answer to `server/discover` or `initialize`, as it came."""

    @property
    def is_delta(self) -> bool:
        """Whether it speaks Delta-MCP's own dialect: JSON in every text, pages by arguments."""
        return versions.is_delta_mcp(self.protocol)

    @property
    def progressive(self) -> dict[str, JSON] | None:
        """The settings of our extension, where the server has it."""
        own = self.capabilities.get("extensions" if self.era is Era.MODERN else "experimental")
        settings = own.get(progressive_disclosure.NAME) if isinstance(own, dict) else None
        return settings if isinstance(settings, dict) else None

    def changes(self, kind: str) -> bool:
        """Whether it tells when its tools, prompts or resources have changed."""
        said = self.capabilities.get(kind)
        return isinstance(said, dict) and said.get("listChanged") is True


class Manner(Struct, frozen=True):
    """How a client introduces itself."""

    info: dict[str, JSON]
    spoken: Spoken
    encoding: Encoding
    progressive: bool
    elicits: bool
    samples: bool
    has_roots: bool

    def speaking(self, spoken: Spoken) -> "Manner":
        return replace(self, spoken=spoken)

    def can(self, era: Era) -> dict[str, JSON]:
        return speech.capabilities(
            era,
            elicits=self.elicits,
            samples=self.samples,
            has_roots=self.has_roots,
            progressive=self.progressive,
        )


class _Settled(Struct, frozen=True):
    """What was agreed on; only the one agreement that counts is kept to."""

    server: ServerInfo
    speech: Speech
    codec: Codec = JSON_CODEC


async def introduce(conversation: Conversation, manner: Manner, who: str) -> ServerInfo:
    """Settles what is spoken, and with whom.

    Raises:
        UnreachableError: nothing that both sides speak; the text says what to do.
        ClientError: the connection broke.
    """
    settled = await _settled(conversation, manner, who)
    conversation.speech, conversation.link.codec = settled.speech, settled.codec
    return replace(settled.server, encoding=settled.codec.name)


async def _settled(conversation: Conversation, manner: Manner, who: str) -> _Settled:
    if manner.spoken in ("handshake", "delta-mcp"):
        return await _agreed(conversation, manner, who, manner.spoken == "delta-mcp")
    found = await _probed(conversation, manner, who)
    if isinstance(found, _Settled):
        return found
    if manner.spoken == "modern":
        raise UnreachableError(f"{who} does not speak MCP {versions.MODERN[0]}: {found}")
    return await _agreed(conversation, manner, who, speech.is_delta_refusal(found))


async def _probed(conversation: Conversation, manner: Manner, who: str) -> _Settled | str:
    """Who answers; or why it is not of the modern era, where nothing else was agreed on in the meantime."""
    probing = asyncio.ensure_future(_discovered(conversation, manner, who))
    agreeing: asyncio.Future[_Settled] | None = None
    try:
        await asyncio.wait([probing], timeout=None if manner.spoken == "modern" else _PROBE_SECONDS)
        if not probing.done():
            # It is of the handshake era and says nothing, or of either and takes its time to start.
            agreeing = asyncio.ensure_future(_agreed(conversation, manner, who, as_delta=False))
            await asyncio.wait([probing, agreeing], return_when=asyncio.FIRST_COMPLETED)
        found = await probing if agreeing is None or probing.done() else "it says nothing"
        return found if agreeing is None or isinstance(found, _Settled) else await agreeing
    finally:
        begun = [task for task in (probing, agreeing) if task is not None]
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)


async def _discovered(conversation: Conversation, manner: Manner, who: str) -> _Settled | str:
    """A server of the modern era, or what was said by one that is not."""

    async def ask(version: str) -> dict[str, JSON]:
        modern_speech = speech.in_modern(version, manner.info, manner.can(Era.MODERN))
        return await conversation.ask("server/discover", {}, {}, speech=modern_speech)

    try:
        try:
            result = await ask(versions.MODERN[0])
        except PeerError as error:
            rather = speech.rather_spoken(error.code, error.data)
            common = [version for version in versions.MODERN if version in rather]
            if rather and not common and not set(rather) & set(versions.HANDSHAKE):
                raise UnreachableError(
                    f"{who} speaks only {', '.join(rather)[:100]}, which is not known here."
                ) from None
            if not common:
                return str(error)
            # MCP 2026-07-28: who refuses a version names others; the request is sent again in one of them.
            result = await ask(common[0])
    except (PeerError, HttpStatusError) as error:
        return str(error)
    return _modern_info(conversation, manner, result)


def _modern_info(conversation: Conversation, manner: Manner, result: dict[str, JSON]) -> _Settled | str:
    supported = result.get("supportedVersions")
    common = [version for version in versions.MODERN if not isinstance(supported, list) or version in supported]
    if not common:
        return "it speaks no revision that is known here"
    meta: Any = result.get("_meta")
    named = meta.get(modern.SERVER_KEY) if isinstance(meta, dict) else None
    info = _info(named if isinstance(named, dict) else result.get("serverInfo"))
    server = _server(result, info, Era.MODERN, common[0])
    offered = (server.progressive or {}).get("encodings")
    # Without an `initialize` only HTTP can say, message by message, what it is written in.
    is_agreed = conversation.link.mirrors and isinstance(offered, list) and manner.encoding in offered
    spoken = speech.in_modern(common[0], manner.info, manner.can(Era.MODERN))
    return _Settled(server, spoken, CODECS[manner.encoding] if is_agreed else JSON_CODEC)


async def _agreed(conversation: Conversation, manner: Manner, who: str, as_delta: bool) -> _Settled:
    params = speech.initialize(manner.info, manner.can(Era.HANDSHAKE), as_delta, manner.encoding, manner.progressive)
    try:
        result = await conversation.ask("initialize", params, {}, speech=speech.UNSPOKEN)
    except PeerError as error:
        raise UnreachableError(f"{who} refused the introduction: {str(error)[:300]}") from None
    version = result.get("protocolVersion")
    codec = JSON_CODEC
    if isinstance(version, str) and as_delta and versions.is_delta_mcp(version):
        spoken = speech.in_handshake(versions.DELTA_MCP_BASELINE, is_delta=True)
        said: Any = result.get("encoding")
        codec = CODECS.get(said.get("format", ""), JSON_CODEC) if isinstance(said, dict) else JSON_CODEC
        conversation.link.codec = codec  # what follows is written so, the next message already
    elif version in versions.HANDSHAKE:
        spoken = speech.in_handshake(str(version))
    else:
        raise UnreachableError(f"{who} speaks {version!r:.40}, which is no revision of MCP that is known here.")
    await conversation.notify("notifications/initialized", {}, spoken)
    server = _server(result, _info(result.get("serverInfo")), Era.HANDSHAKE, str(version))
    return _Settled(server, spoken, codec)


def _info(said: Any) -> tuple[str, str]:
    name, version = (said.get("name"), said.get("version")) if isinstance(said, dict) else (None, None)
    return (name if isinstance(name, str) else "unnamed"), (version if isinstance(version, str) else "")


def _server(result: Mapping[str, Any], info: tuple[str, str], era: Era, protocol: str) -> ServerInfo:
    capabilities, instructions = result.get("capabilities"), result.get("instructions")
    return ServerInfo(
        *info,
        era,
        protocol,
        capabilities if isinstance(capabilities, dict) else {},
        instructions if isinstance(instructions, str) else None,
        raw=dict(result),
    )
