"""The handshake era, 2024-11-05 to 2025-11-25: agreed once by `initialize`, then assumed."""

from collections.abc import Collection
from typing import assert_never

from msgspec import Struct

from deltamcp.dialects import delta_mcp, params, result_bodies, versions
from deltamcp.errors import FAULTS, Fault
from deltamcp.values import (
    ANONYMOUS,
    JSON,
    About,
    Answer,
    Ask,
    Era,
    Failure,
    InputRequired,
    LogLevel,
    Outcome,
    Page,
    Principal,
    Request,
    RequestId,
    Surface,
    Terms,
)
from deltamcp.wire import jsonrpc


class Agreement(Struct, frozen=True):
    """What a handshake settled for the rest of its session."""

    version: str
    capabilities: dict[str, JSON]
    client: dict[str, JSON]
    delta: bool = False
    """The client speaks Delta-MCP on top of this version."""
    surface: Surface | None = None
    encoding: str = "json"
    """What both write from now on; over HTTP a request may still say otherwise."""


def agree(params: dict[str, JSON], encodings: Collection[str]) -> Agreement | Failure:
    """The client's `initialize`: its version where we speak it, else our newest; the best of the `encodings`."""
    requested = params.get("protocolVersion")
    if type(requested) is not str:
        return Failure(Fault.INVALID_PARAMS, "params.protocolVersion must be a string.")
    for name in ("capabilities", "clientInfo"):
        if type(params.get(name, {})) is not dict:
            return Failure(Fault.INVALID_PARAMS, f"params.{name} must be an object.")
    capabilities, client = params.get("capabilities", {}), params.get("clientInfo", {})
    if delta_mcp.is_spoken(requested):
        encoding = delta_mcp.encoding(capabilities, encodings)
        return Agreement(delta_mcp.BASELINE, capabilities, client, True, delta_mcp.surface(capabilities), encoding)
    version = requested if requested in versions.HANDSHAKE else versions.HANDSHAKE[0]
    declared = delta_mcp.declares(capabilities.get("experimental"))
    return Agreement(version, capabilities, client, surface=Surface.PROGRESSIVE if declared else None)


def read(
    request: Request, agreement: Agreement, log_level: LogLevel | None, principal: Principal = ANONYMOUS
) -> tuple[Terms, Ask] | Failure:
    """A request inside a session."""
    ask = (delta_mcp.read(request) if agreement.delta else None) or params.read(request, params.HANDSHAKE)
    if isinstance(ask, Failure):
        return ask
    meta = request.params.get("_meta") or {}
    if type(meta) is not dict:
        return Failure(Fault.INVALID_PARAMS, "params._meta must be an object.")
    terms = Terms(
        Era.HANDSHAKE,
        agreement.version,
        agreement.capabilities,
        agreement.client,
        meta,
        log_level,
        principal,
        agreement.surface,
        agreement.delta,
    )
    return terms, ask


def introduce(id_: RequestId, about: About, agreement: Agreement, encodings: Collection[str]) -> bytes:
    """The answer to `initialize`."""
    if agreement.delta:
        return jsonrpc.result(id_, jsonrpc.encode(delta_mcp.introduction(about, encodings, agreement.encoding)))
    if "tools" in about.capabilities:
        # 2026-07-28 has `extensions` for what these revisions call experimental.
        capabilities = {**about.capabilities, "experimental": {delta_mcp.EXTENSION: delta_mcp.SETTINGS}}
        about = About(about.info, capabilities, about.instructions)
    return write(id_, Answer(about), agreement.version)


def write(id_: RequestId, outcome: Outcome, version: str) -> bytes:
    """What came of a request, as its answer.

    Raises:
        ValueError: a result holds what JSON cannot say.
    """
    match outcome:
        case Answer():
            if isinstance(outcome.value, Page):
                return jsonrpc.result(id_, _page(outcome.value, version))
            if isinstance(outcome.value, About):
                made = {"protocolVersion": version, "serverInfo": _info(outcome.value.info, version)}
                return jsonrpc.result(id_, jsonrpc.encode(result_bodies.body(outcome, version, made)))
            return jsonrpc.result(id_, jsonrpc.encode(result_bodies.body(outcome, version, {})))
        case Failure():
            return jsonrpc.error(id_, FAULTS[outcome.fault].handshake, outcome)
        case InputRequired():
            raise AssertionError("in this era questions are requests of their own, never results")
        case _:
            assert_never(outcome)


def _page(page: Page, version: str) -> bytes:
    encoded = page.encoded.get(version)
    if encoded is None:
        encoded = page.encoded[version] = jsonrpc.encode(result_bodies.body(Answer(page), version, {}))
    return encoded


def _info(info: dict[str, JSON], version: str) -> dict[str, JSON]:
    if version >= "2025-11-25":
        return info
    known = {"name", "version", "title"} if version >= "2025-06-18" else {"name", "version"}
    return {key: value for key, value in info.items() if key in known}
