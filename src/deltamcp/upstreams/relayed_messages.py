"""What an upstream asks and logs while it performs a caller's request, in the form in which the caller can be told."""

import uuid
from collections.abc import Hashable, Mapping
from typing import Any

from deltamcp.context import CAPABILITY, Context, adapt_question
from deltamcp.dialects import versions
from deltamcp.dialects.methods import LOG_LEVELS
from deltamcp.errors import FAULTS, Fault, InputDeclinedError, PeerError
from deltamcp.values import JSON, Era, InputRequest, Terms

_INVALID_PARAMS = FAULTS[Fault.INVALID_PARAMS].handshake


def request_owner(context: Context) -> Hashable:
    """Returns whom a request is of; a request of somebody who cannot be told from others is its own owner."""
    caller = context.terms.caller
    if caller.conversation is None and caller.is_anonymous:
        return object()
    return caller.principal.key, caller.conversation


def relayed_question(method: str, params: Mapping[str, JSON], terms: Terms) -> InputRequest:
    """Returns a question of an upstream for a client, with all that the upstream wrote.

    Raises:
        PeerError: the client cannot be asked this; the upstream can be told so.
    """
    if method not in CAPABILITY:
        raise PeerError(FAULTS[Fault.UNKNOWN_METHOD].handshake, f"{method[:100]} is not passed on.")
    question = InputRequest(method, dict(params))
    try:
        if method == "elicitation/create":
            return _elicitation(question, terms)
        declared = terms.capabilities.get("sampling")
        takes_tools = isinstance(declared, dict) and "tools" in declared
        if method == "sampling/createMessage" and "tools" in params and not takes_tools:
            raise PeerError(_INVALID_PARAMS, "The client does not support sampling with tools.")
        return adapt_question(question, terms)
    except InputDeclinedError as error:
        raise PeerError(_INVALID_PARAMS, str(error)) from None


def _elicitation(question: InputRequest, terms: Terms) -> InputRequest:
    params = question.params
    mode = params.get("mode", "form")
    if mode == "form" and not _is_form(params.get("requestedSchema")):
        raise PeerError(_INVALID_PARAMS, "requestedSchema must be the schema of an object with properties.")
    # Servers older than the modes leave `mode` out of a form.
    adapted = adapt_question(InputRequest(question.method, {**params, "mode": mode}), terms).params
    if "mode" not in params:
        adapted = {key: value for key, value in adapted.items() if key != "mode"}
    if mode == "url" and terms.era is Era.HANDSHAKE and terms.version in versions.HANDSHAKE:
        adapted.setdefault("elicitationId", str(uuid.uuid4()))  # 2026-07-28 has none
    return InputRequest(question.method, adapted)


def _is_form(schema: Any) -> bool:
    properties = schema.get("properties", {}) if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not isinstance(schema.get("required", []), list):
        return False
    return all(isinstance(field, dict) for field in properties.values())


async def relay_log(params: Mapping[str, JSON], context: Context) -> None:
    """Sends a log message of an upstream to the caller, if it wants messages of this level."""
    level, name = params.get("level"), params.get("logger")
    if level in LOG_LEVELS:
        await context.log(level, params.get("data"), name if isinstance(name, str) else None)
