"""A request of a client that an upstream performs: its progress, its questions and its answers pass through."""

from collections.abc import Hashable, Mapping
from typing import Any

from deltamcp.calls.result_savings import SAVINGS_KEY
from deltamcp.client.client import DeltaClient
from deltamcp.context import CAPABILITY, Context, InputPending, MissingCapabilityError
from deltamcp.dialects import modern
from deltamcp.errors import FAULTS, Fault, InputDeclinedError, PeerError, ToolError
from deltamcp.values import JSON, Era, InputRequest, RawResult

_MAX_ROUNDS = 50
"""How often an upstream may ask for input in one request."""
_OWN_META = frozenset(
    {
        "progressToken",
        modern.VERSION_KEY,
        modern.CLIENT_KEY,
        modern.CAPABILITIES_KEY,
        modern.LOG_LEVEL_KEY,
        SAVINGS_KEY,
    }
)
"""The members of a request's `_meta` that are between this server and its client."""


class CallerQuestions:
    """Asks the caller what an upstream of the handshake era asks during the caller's request."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._count = 0

    @property
    def owner(self) -> Hashable:
        caller = self._context.terms.caller
        return caller.principal.key, caller.conversation

    async def answer(self, method: str, params: dict[str, JSON]) -> dict[str, JSON]:
        if method not in CAPABILITY:
            raise PeerError(FAULTS[Fault.UNKNOWN_METHOD].handshake, f"{method[:100]} is not passed on.")
        self._count += 1
        try:
            answers = await self._context.ask(**{f"{CAPABILITY[method]}-{self._count}": InputRequest(method, params)})
        except (MissingCapabilityError, InputDeclinedError) as error:
            raise PeerError(FAULTS[Fault.INVALID_PARAMS].handshake, str(error)) from None
        return next(iter(answers.values()))


async def forward(
    client: DeltaClient, method: str, params: Mapping[str, JSON], context: Context, **options: Any
) -> RawResult:
    """Has an upstream perform a request of a caller.

    Raises:
        InputPending: the caller has to answer the upstream's questions first.
        PeerError, ConnectionLostError, DeadlineError: as `DeltaClient.forward`.
    """
    terms = context.terms
    meta = {key: value for key, value in terms.meta.items() if key not in _OWN_META}
    sent = dict(params)
    if isinstance(context.memo, dict):
        sent |= {"requestState": context.memo["state"]} if "state" in context.memo else {}
        sent["inputResponses"] = await context.ask(**_questions(context.memo["requests"]))
    for _ in range(_MAX_ROUNDS):
        result = await client.forward(
            method,
            sent,
            meta,
            capabilities=terms.capabilities,
            progress=context.progress,
            questions=CallerQuestions(context),
            **options,
        )
        if client.server.era is not Era.MODERN or result.fields.get("resultType") != "input_required":
            return result
        memo = {"requests": result.fields.get("inputRequests") or {}}
        if "requestState" in result.fields:
            memo["state"] = result.fields["requestState"]
        try:
            answers = await context.ask(**_questions(memo["requests"]))
        except InputPending as pending:
            raise InputPending(pending.requests, memo) from None
        sent = {**params, "inputResponses": answers}
        if "state" in memo:
            sent["requestState"] = memo["state"]
    raise ToolError(f"The server asked for input {_MAX_ROUNDS} times in a row.")


def _questions(requests: Any) -> dict[str, InputRequest]:
    return {key: InputRequest(request["method"], request.get("params") or {}) for key, request in requests.items()}
