"""The user's consent to an operation with `policy="confirm"`."""

import hashlib
import logging
from typing import Any

import msgspec

from deltamcp.calls.middleware import CallNext, FunctionCall
from deltamcp.calls.request_context import CONSENT_PREFIX, Answers
from deltamcp.catalog.text.clean_text import json_text
from deltamcp.errors import InputDeclinedError, ToolError
from deltamcp.stores.store import Store, StoreError
from deltamcp.values import JSON, Caller, Era

logger: logging.Logger = logging.getLogger("deltamcp")
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
