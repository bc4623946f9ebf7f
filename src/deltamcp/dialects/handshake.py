"""The dialect of MCP 2024-11-05 to 2025-11-25, the handshake era: client and server negotiate once, in `initialize`.

A session lives for half an hour and more, so that it keeps what this library reads, and not what a client may send.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import assert_never

from deltamcp.dialects import methods, progressive_disclosure, result_bodies, tasks, versions
from deltamcp.dialects.dialect import Agreement
from deltamcp.dialects.methods import in_named_conversation
from deltamcp.errors import FAULTS, Fault
from deltamcp.values import (
    JSON,
    About,
    Answer,
    Ask,
    Caller,
    Era,
    Failure,
    InputRequired,
    Outcome,
    Page,
    Promise,
    RawResult,
    Request,
    RequestId,
    ResourceRequired,
    Surface,
    Terms,
)
from deltamcp.wire import jsonrpc

_MAX_CHARS = 256
_INFO_TEXTS = ("name", "title", "version", "description", "websiteUrl")
"""The fields of `clientInfo` that are texts; a client's icons are not kept."""

_CAPABILITY_SETTINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"elicitation": ("form", "url"), "sampling": ("context", "tools"), "roots": ("listChanged",)}
)
"""The capabilities by which a client can be asked something, and their settings."""


def kept_info(info: dict[str, JSON]) -> dict[str, JSON]:
    """Returns the texts of a `clientInfo`, each up to 256 characters."""
    return {name: info[name][:_MAX_CHARS] for name in _INFO_TEXTS if type(info.get(name)) is str}


def kept_capabilities(declared: dict[str, JSON]) -> dict[str, JSON]:
    """Returns the capabilities by which a client can be asked something, with the settings that MCP has for them."""
    return {
        name: _kept_settings(declared[name], settings)
        for name, settings in _CAPABILITY_SETTINGS.items()
        if declared.get(name) is not None
    }


def _kept_settings(declared: JSON, known: tuple[str, ...]) -> dict[str, JSON]:
    if type(declared) is not dict:
        return {}
    return {name: declared[name] if type(declared[name]) is bool else {} for name in known if name in declared}


class HandshakeMcp:
    """Reads and writes MCP messages of sessions that begin with `initialize`."""

    name = "mcp"

    def recognizes(self, request: Request) -> bool:
        return request.method == "initialize"

    def agree(self, params: dict[str, JSON], encodings: Collection[str]) -> Agreement | Failure:
        """Agrees on the client's version if this server supports it, else on the newest version of the era."""
        offer = read_offer(params)
        if isinstance(offer, Failure):
            return offer
        requested, capabilities, client = offer
        version = requested if requested in versions.HANDSHAKE else versions.HANDSHAKE[0]
        declared = progressive_disclosure.is_declared(capabilities.get("experimental"))
        surface = Surface.PROGRESSIVE if declared else None
        return Agreement(version, kept_capabilities(capabilities), kept_info(client), surface)

    def introduce(self, request: Request, about: About, agreement: Agreement, encodings: Collection[str]) -> bytes:
        return self.write(request, Answer(about), agreement.version)

    def capabilities(self, about: About) -> dict[str, JSON]:
        # These versions call `experimental` what 2026-07-28 calls `extensions`.
        return progressive_disclosure.extend(about.capabilities, "experimental")

    def read(self, request: Request, caller: Caller, agreement: Agreement | None = None) -> tuple[Terms, Ask] | Failure:
        assert agreement is not None, "in this era every request belongs to a session"
        has_tasks = agreement.version == versions.TASKS_IN
        return read_in_session(request, caller, agreement, _read_with_tasks if has_tasks else read_ask)

    def write(self, request: Request, outcome: Outcome, version: str) -> bytes:
        match outcome:
            case Answer():
                if isinstance(outcome.value, Page):
                    return jsonrpc.encode_result(request.id, _encode_page(outcome.value, version))
                if isinstance(outcome.value, RawResult) and request.method != "tasks/result":
                    return jsonrpc.encode_result(request.id, result_bodies.encode_handshake(outcome.value, version))
                if isinstance(outcome.value, About):
                    return jsonrpc.encode_result(request.id, jsonrpc.encode(self._introduction(outcome.value, version)))
                body = result_bodies.body(outcome, version, {})
                if request.method == "tasks/result":
                    body = tasks.with_related_task(body, request.params.get("taskId"))
                return jsonrpc.encode_result(request.id, jsonrpc.encode(body))
            case Failure():
                return jsonrpc.encode_error(request.id, outcome.code or FAULTS[outcome.fault].handshake, outcome)
            case InputRequired():
                raise AssertionError("in this era questions are requests of their own, never results")
            case ResourceRequired():
                return self.write(request, Answer(result_bodies.resource_result(outcome)), version)
            case Promise():
                created = {"task": tasks.task_fields(outcome, version)}
                return jsonrpc.encode_result(request.id, jsonrpc.encode(created))
            case _:
                assert_never(outcome)

    def _introduction(self, about: About, version: str) -> dict[str, JSON]:
        fields = {"protocolVersion": version, "serverInfo": versions.fit_info(about.info, version)}
        capabilities = self.capabilities(about)
        if about.gives_promises and version == versions.TASKS_IN:
            capabilities = {**capabilities, "tasks": tasks.HANDSHAKE_CAPABILITY}
        extended = About(about.info, capabilities, about.instructions)
        return result_bodies.body(Answer(extended), version, fields)

    def notify(self, method: str, params: Mapping[str, JSON], subscription: RequestId | None = None) -> bytes:
        return jsonrpc.encode_notification(method, dict(params))

    def http_status(self, failure: Failure) -> int:
        return FAULTS[failure.fault].handshake_http


def read_offer(params: dict[str, JSON]) -> tuple[str, dict[str, JSON], dict[str, JSON]] | Failure:
    """Returns the version, capabilities and client info in the parameters of `initialize`."""
    requested = params.get("protocolVersion")
    if type(requested) is not str:
        return Failure(Fault.INVALID_PARAMS, "params.protocolVersion must be a string.")
    for name in ("capabilities", "clientInfo"):
        if type(params.get(name, {})) is not dict:
            return Failure(Fault.INVALID_PARAMS, f"params.{name} must be an object.")
    return requested, params.get("capabilities", {}), params.get("clientInfo", {})


def read_ask(request: Request) -> Ask | Failure:
    """Returns the ask of a request of a client without tasks."""
    return methods.read(request, methods.HANDSHAKE)


def _read_with_tasks(request: Request) -> Ask | Failure:
    return methods.read(request, methods.HANDSHAKE_WITH_TASKS)


def read_in_session(
    request: Request, caller: Caller, agreement: Agreement | None, read_ask: Callable[[Request], Ask | Failure]
) -> tuple[Terms, Ask] | Failure:
    """Returns the terms and the ask of a request in a session."""
    assert agreement is not None, "in this era every request belongs to a session"
    ask = read_ask(request)
    if type(ask) is Failure:
        return ask
    meta = request.params.get("_meta") or {}
    if type(meta) is not dict:
        return Failure(Fault.INVALID_PARAMS, "params._meta must be an object.")
    if methods.has_long_token(meta):
        return methods.LONG_TOKEN
    terms = Terms(
        Era.HANDSHAKE,
        agreement.version,
        agreement.capabilities,
        agreement.client,
        meta,
        agreement.log_level,
        in_named_conversation(caller, meta),
        agreement.surface,
        agreement.result_shape,
    )
    return terms, ask


def _encode_page(page: Page, version: str) -> bytes:
    encoded = page.encoded.get(version)
    if encoded is None:
        encoded = page.encoded[version] = jsonrpc.encode(result_bodies.body(Answer(page), version, {}))
    return encoded
