"""How to speak to a server: what each era wants said around a request. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from deltamcp.catalog import headers as mirrored
from deltamcp.catalog.headers import ParameterHeader
from deltamcp.dialects import mirrored_headers, modern, progressive_disclosure, versions
from deltamcp.errors import FAULTS, Fault
from deltamcp.values import JSON, Era

_VERSION = "mcp-protocol-version"


class Speech(Struct, frozen=True):
    """What one connection speaks."""

    era: Era
    version: str
    own: dict[str, JSON]
    """What every request carries in its `_meta`; nothing in the handshake era."""
    delta: bool = False
    """Delta-MCP on top of this version: results are JSON in text, pages are turned by arguments."""

    def params(self, params: Mapping[str, JSON], meta: Mapping[str, JSON]) -> dict[str, JSON]:
        """A request's parameters with their `_meta`."""
        if self.own or meta:
            return {**params, "_meta": {**meta, **self.own}}
        return dict(params)

    def headers(
        self, method: str, params: Mapping[str, JSON], parameters: tuple[ParameterHeader, ...] = ()
    ) -> dict[str, str]:
        """What HTTP carries beside a message. `parameters` are the arguments that a tool wants repeated there."""
        if self.era is Era.HANDSHAKE:
            # Which version it is going to be, `initialize` does not know yet.
            return {_VERSION: self.version} if self.version else {}
        made = {_VERSION: self.version, "mcp-method": method}
        name = params.get(mirrored_headers.NAMED_BY.get(method, ""))
        if isinstance(name, str):
            made["mcp-name"] = mirrored.encode(name)
        for parameter in parameters:
            value = mirrored.value_at(params.get("arguments"), parameter.path)
            if value is not None:
                made[parameter.header.decode()] = mirrored.encode(_said(value))
        return made


def _said(value: JSON) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def in_modern(version: str, info: dict[str, JSON], capabilities: dict[str, JSON]) -> Speech:
    """Every request says who sends it and what they understand."""
    own = {modern.VERSION_KEY: version, modern.CLIENT_KEY: info, modern.CAPABILITIES_KEY: capabilities}
    return Speech(Era.MODERN, version, own)


def in_handshake(version: str, is_delta: bool = False) -> Speech:
    return Speech(Era.HANDSHAKE, version, {}, is_delta)


UNSPOKEN = Speech(Era.HANDSHAKE, "", {})
"""Before `initialize` is answered."""


def capabilities(era: Era, *, elicits: bool, samples: bool, has_roots: bool, progressive: bool) -> dict[str, JSON]:
    """What a client says it can do. 2026-07-28 has `extensions` for what earlier revisions call experimental."""
    made: dict[str, JSON] = {}
    if elicits:
        made["elicitation"] = {"form": {}, "url": {}}
    if samples:
        made["sampling"] = {}
    if has_roots:
        made["roots"] = {}
    if progressive:
        made["extensions" if era is Era.MODERN else "experimental"] = {progressive_disclosure.NAME: {}}
    return made


def initialize(
    info: dict[str, JSON], can: dict[str, JSON], as_delta: bool, encoding: str, progressive: bool
) -> dict[str, JSON]:
    """The parameters of the handshake."""
    if not as_delta:
        return {"protocolVersion": versions.HANDSHAKE[0], "capabilities": can, "clientInfo": info}
    offered: dict[str, JSON] = {"compactJson": encoding != "json"}
    if encoding == "cbor":
        offered["cbor"] = True
    own = {"tools": {"progressiveDisclosure": progressive, "lazyLoading": progressive}, "encoding": offered}
    return {"protocolVersion": versions.DELTA_MCP, "capabilities": {**can, **own}, "clientInfo": info}


def rather_spoken(code: int, data: JSON) -> list[str]:
    """The versions a modern server would rather speak, where that is what its error says."""
    supported = (
        data.get("supported") if code == FAULTS[Fault.UNSUPPORTED_VERSION].modern and isinstance(data, dict) else ()
    )
    return [version for version in supported if isinstance(version, str)] if isinstance(supported, list) else []


def is_delta_refusal(message: str) -> bool:
    """Whether a probe was refused in the words of the original Delta-MCP, over stdio or over HTTP."""
    return message in (
        "Unknown method: server/discover",
        f"Unsupported MCP-Protocol-Version: {versions.MODERN[0]}",
    )
