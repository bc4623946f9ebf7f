"""Questions to users: for their consent to an operation with `policy="confirm"`, and where their clients cannot ask.

Where a client cannot, a tool result asks the model, which calls again with the answers. These come as the argument
`$answers`, under a ticket. The ticket stands for what the server seals for clients that can be asked: it is valid once,
for the same call of the same principal, and as long as any answer.
"""

import hashlib
import logging
import secrets
from typing import Any

import msgspec

from deltamcp.calls.middleware import CallNext, FunctionCall
from deltamcp.calls.request_context import CONSENT_PREFIX, Answers
from deltamcp.catalog.items.operation import Operation
from deltamcp.catalog.text import tool_text
from deltamcp.catalog.text.clean_text import cut, json_text
from deltamcp.dialects.questions import list_questions
from deltamcp.errors import InputDeclinedError, ToolError, ToolErrorCode, UsageError
from deltamcp.results.content import server_error
from deltamcp.stores.store import Store, StoreError
from deltamcp.values import (
    ANSWERS_KEY,
    JSON,
    Caller,
    CallTool,
    Era,
    InputRequest,
    InputRequired,
    Inputs,
    ResultShape,
    Terms,
    ToolResult,
)
from deltamcp.wire import jsonrpc

logger: logging.Logger = logging.getLogger("deltamcp")

_ACTIONS = ("accept", "decline", "cancel")
_MESSAGE_CHARS = 2000
_TICKET_BYTES = 9


def may_ask_through_model(terms: Terms, is_meta: bool) -> bool:
    """Whether questions of a call become a tool result: where the protocol has no other way to refuse a call for them.

    MCP 2026-07-28, "Capability Negotiation": a direct call is refused with the capability that it needs. That of a
    meta-tool, which works, is not.
    """
    if "elicitation" in terms.capabilities or terms.result_shape is ResultShape.MCP_LITE:
        return False
    return is_meta or terms.era is Era.HANDSHAKE


class ModelQuestions:
    """The questions that models were asked to pass on, in the store that replicas share."""

    def __init__(self, store: Store, server: str, seconds: float) -> None:
        """`seconds` is the time for which a question can be answered."""
        self._store, self._server, self._seconds = store, server, seconds

    async def take_answers(self, ask: CallTool, operation: Operation, caller: Caller) -> CallTool:
        """Returns the call with the answers that are among its arguments as its inputs.

        Raises:
            UsageError: they are no answers, were used, or belong to another call.
            StoreError: what they answer cannot be read.
        """
        if ANSWERS_KEY not in ask.arguments or ANSWERS_KEY in operation.parameter_names:
            return ask
        arguments = {name: value for name, value in ask.arguments.items() if name != ANSWERS_KEY}
        sent = ask.arguments[ANSWERS_KEY]
        if not isinstance(sent, dict) or len(sent) != 1:
            raise UsageError(
                f'{ANSWERS_KEY} must be {{"ticket": {{...}}}}, as the question says. {operation.id} did not run.'
            )
        [(ticket, answers)] = sent.items()
        owner = self._owner(caller)
        found = await self._store.get(owner, ticket)
        state = None if found is None else _decode(found, _digest(operation, arguments))
        if state is None:
            raise UsageError(
                f"The answers are for another call, or came too late, so {operation.id} did not run. "
                f"Call it without {ANSWERS_KEY} to be asked again."
            )
        inputs = _inputs(answers, state)
        if inputs is None:
            raise UsageError(
                f'The answers must be an object, "accept", "decline" or "cancel"; {operation.id} did not run.'
            )
        account = f"questions, {caller.account}"
        if not await self._store.add(owner, f"used {ticket}", b"", self._seconds, self._seconds, account):
            raise UsageError(
                f"These answers were used before, so {operation.id} did not run again. "
                f"Call it without {ANSWERS_KEY} to be asked again."
            )
        return CallTool(ask.name, arguments, inputs, ask.promise)

    async def ask_model(
        self, required: InputRequired, ask: CallTool, operation: Operation, caller: Caller, is_meta: bool
    ) -> ToolResult:
        """Returns the result that asks the model to ask its user, and says how to go on.

        Raises:
            StoreError: the questions cannot be stored.
        """
        ticket = secrets.token_urlsafe(_TICKET_BYTES)
        data = jsonrpc.encode([_digest(operation, ask.arguments), required.state])
        account = f"questions, {caller.account}"
        await self._store.put(self._owner(caller), ticket, data, self._seconds, self._seconds, account)
        lines = [
            f"{operation.id if is_meta else ask.name} waits for its user, whom this client cannot ask. Ask the user, "
            "and do not answer yourself:",
            *(_question_line(request) for request in required.requests.values()),
            f"Then make the same call once more, {'beside params' if is_meta else 'among its arguments'} with "
            f'"{ANSWERS_KEY}":{_example(ticket, required.requests)}, or "decline" in place of the answers.',
        ]
        return server_error("\n".join(lines), ToolErrorCode.INPUT_REQUIRED, retryable=True)

    def _owner(self, caller: Caller) -> str:
        return f"questions of {self._server} to {caller.principal.owner}"


def can_model_ask(required: InputRequired) -> bool:
    """Whether a model can ask all of these questions: they are forms, and not for the client itself."""
    requests = required.requests.values()
    return bool(requests) and all(
        request.method == "elicitation/create" and request.params.get("mode", "form") == "form" for request in requests
    )


def _question_line(request: InputRequest) -> str:
    message = cut(str(request.params.get("message", "")), _MESSAGE_CHARS)
    schema = request.params.get("requestedSchema") or {}
    if not schema.get("properties"):
        return f"- {message} (confirm: true or false)"
    fields = tool_text.signature_line({"name": "answers", "inputSchema": schema}).removeprefix("answers")
    return f"- {message} {fields}"


def _example(ticket: str, requests: dict[str, InputRequest]) -> str:
    """Returns the argument with the ids of all questions."""
    answers = {question.id: True if question.field is None else "..." for question in list_questions(requests)}
    return jsonrpc.encode({ticket: answers}).decode()


def _inputs(answers: JSON, state: str) -> Inputs | None:
    if isinstance(answers, dict):
        return Inputs(fields=answers, state=state)
    return Inputs(state=state, action=answers) if answers in _ACTIONS else None


def _digest(operation: Operation, arguments: dict[str, JSON]) -> str:
    encoded = msgspec.json.encode([operation.id, arguments], order="deterministic")
    return hashlib.sha256(encoded).hexdigest()


def _decode(data: bytes, digest: str) -> str | None:
    """Returns the sealed state of a question; None if it was asked of another call."""
    asked_of, state = msgspec.json.decode(data)
    return state if asked_of == digest else None


_ARGUMENTS_CHARS = 1000
"""The number of characters of the arguments that a user sees in the question; it says how many more there are."""
_FORM: dict[str, JSON] = {"type": "object", "properties": {}}


class Consents:
    """The consents that were used, in the store that replicas share, so that each is used once."""

    def __init__(self, store: Store, server: str, seconds: float) -> None:
        """
        Args:
            server: The name of the server that asks.
            seconds: The time after which a consent cannot be used anyway.
        """
        self._store = store
        self._owner = f"consents of {server}"
        self._seconds = seconds

    async def use(self, operation: str, answers: Answers, key: str, caller: Caller) -> None:
        """Uses the consent that the client sent in answer to the question with this key.

        It counts towards an account of its own for each caller, so that neither results nor other callers displace it.

        Raises:
            ToolError: it was used before, or the store fails and cannot tell, so that the operation must not run.
        """
        name = hashlib.sha256(f"{answers.state_digest} {key}".encode()).hexdigest()
        try:
            is_first = await self._store.add(
                self._owner, name, b"", self._seconds, self._seconds, f"consents, {caller.account}"
            )
        except StoreError as error:
            logger.error("a consent to %s could not be recorded, so it did not run: %s", operation, error)
            raise ToolError(f"The user's consent to {operation} could not be recorded; try again later.") from None
        if not is_first:
            raise ToolError(f"The user's consent to {operation} was used before; call it again to ask once more.")


class Consent:
    """Asks for the user's consent before the function of one call runs; it is the innermost middleware."""

    def __init__(self, consents: Consents, answers: Answers) -> None:
        self._consents = consents
        self._answers = answers
        self._used: set[str] = set()

    async def __call__(self, call: FunctionCall, call_next: CallNext) -> Any:
        """
        Raises:
            ToolError: the client cannot ask its user, or its consent cannot be used.
            InputDeclinedError: the user declined.
        """
        terms = call.context.terms
        is_in_rounds = terms.era is Era.MODERN or terms.asks_through_model
        if not is_in_rounds and not call.context.can("elicitation"):
            raise ToolError(f"{call.name} runs only with the user's consent, and this client cannot ask for it.")
        arguments = msgspec.json.encode(call.arguments, order="deterministic")
        # A middleware may run the rest twice, with other arguments each time; each run needs a consent of its own.
        key = f"{CONSENT_PREFIX}{call.name} {hashlib.sha256(arguments).hexdigest()[:32]}"
        answer = await call.context.elicit(f"Run {call.name} with {_arguments_text(call.arguments)}?", _FORM, key=key)
        if not answer.accepted:
            raise InputDeclinedError(f"The user declined to run {call.name}.")
        if is_in_rounds and key not in self._used:
            await self._consents.use(call.name, self._answers, key, call.context.terms.caller)
            self._used.add(key)
        return await call_next(call)


def _arguments_text(arguments: dict[str, JSON]) -> str:
    text = json_text(arguments)
    hidden = len(text) - _ARGUMENTS_CHARS
    return text if hidden <= 0 else f"{text[:_ARGUMENTS_CHARS]}… ({hidden:,} more characters are not shown)"
