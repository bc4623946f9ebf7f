"""How to speak to a server: what each era wants said around a request. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from deltamcp.catalog import param_headers as mirrored
from deltamcp.catalog.param_headers import ParameterHeader
from deltamcp.dialects import mirrored_headers, modern, progressive_disclosure, versions
from deltamcp.errors import FAULTS, Fault
from deltamcp.values import JSON, Era

_VERSION_HEADER = "mcp-protocol-version"


class ClientDialect(Struct, frozen=True):
    """What one connection speaks."""

    era: Era
    version: str
    request_meta: dict[str, JSON]
    """What every request carries in its `_meta`; nothing in the handshake era."""
    is_delta: bool = False
    """Delta-MCP on top of this version: results are JSON in text, pages are turned by arguments."""

    def request_params(self, params: Mapping[str, JSON], meta: Mapping[str, JSON]) -> dict[str, JSON]:
        """A request's parameters with their `_meta`."""
        if self.request_meta or meta:
            return {**params, "_meta": {**meta, **self.request_meta}}
        return dict(params)

    def headers(
        self, method: str, params: Mapping[str, JSON], parameter_headers: tuple[ParameterHeader, ...] = ()
    ) -> dict[str, str]:
        """What HTTP carries beside a message. `parameters` are the arguments that a tool wants repeated there."""
        if self.era is Era.HANDSHAKE:
            # Which version it is going to be, `initialize` does not know yet.
            return {_VERSION_HEADER: self.version} if self.version else {}
        made = {_VERSION_HEADER: self.version, "mcp-method": method}
        name = params.get(mirrored_headers.NAMED_BY.get(method, ""))
        if isinstance(name, str):
            made["mcp-name"] = mirrored.encode(name)
        for parameter in parameter_headers:
            value = mirrored.value_at(params.get("arguments"), parameter.path)
            if value is not None:
                made[parameter.header.decode()] = mirrored.encode(_header_text(value))
        return made


def _header_text(value: JSON) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def modern_dialect(version: str, info: dict[str, JSON], capabilities: dict[str, JSON]) -> ClientDialect:
    """Every request says who sends it and what they understand."""
    own = {modern.VERSION_KEY: version, modern.CLIENT_KEY: info, modern.CAPABILITIES_KEY: capabilities}
    return ClientDialect(Era.MODERN, version, own)


def handshake_dialect(version: str, is_delta: bool = False) -> ClientDialect:
    return ClientDialect(Era.HANDSHAKE, version, {}, is_delta)


UNNEGOTIATED = ClientDialect(Era.HANDSHAKE, "", {})
"""Before `initialize` is answered."""


def client_capabilities(
    era: Era, *, elicits: bool, samples: bool, has_roots: bool, progressive: bool
) -> dict[str, JSON]:
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


def initialize_params(
    info: dict[str, JSON], capabilities: dict[str, JSON], as_delta: bool, encoding: str, progressive: bool
) -> dict[str, JSON]:
    """The parameters of the handshake."""
    if not as_delta:
        return {"protocolVersion": versions.HANDSHAKE[0], "capabilities": capabilities, "clientInfo": info}
    offered: dict[str, JSON] = {"compactJson": encoding != "json"}
    if encoding == "cbor":
        offered["cbor"] = True
    own = {"tools": {"progressiveDisclosure": progressive, "lazyLoading": progressive}, "encoding": offered}
    return {"protocolVersion": versions.DELTA_MCP, "capabilities": {**capabilities, **own}, "clientInfo": info}


def supported_versions(code: int, data: JSON) -> list[str]:
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
