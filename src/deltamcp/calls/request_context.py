"""The context of one request, and its state where it takes several rounds (2026-07-28)."""

import hashlib
import time
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from deltamcp.catalog.view import View
from deltamcp.context import Channel, InputPending, RequestProgress
from deltamcp.delivery.change_delivery import ChangeDelivery
from deltamcp.dialects.questions import Question, list_questions, read_responses
from deltamcp.errors import Fault, NeedsResource, UsageError
from deltamcp.results.policy import requested_since
from deltamcp.runtime.seal import Seal, SessionContext
from deltamcp.values import (
    JSON,
    NO_INPUTS,
    Caller,
    Failure,
    InputRequest,
    InputRequired,
    Inputs,
    NeededResource,
    RequestId,
    ResourceRequired,
    Terms,
)

CONSENT_PREFIX: Final = "confirm "
"""Begins the keys of the server's own questions for consent; `calls/function_runner.py` asks them."""
LOGIN_PREFIX: Final = "login "
"""Begins the keys of a gateway's own questions for logins; `upstreams/user_login.py` asks them."""

_MAX_ANSWER_BYTES = 256 * 1024
"""All answers of one request, which go to the client and back in every further round; a model's answer is shorter."""
_MAX_MEMO_BYTES = 256 * 1024
"""What a function leaves for its next round; that of a gateway has the sealed state of the server behind it."""
_MAX_STATE_CHARS = (_MAX_ANSWER_BYTES + _MAX_MEMO_BYTES) * 4 // 3 + 64 * 1024
"""The answers, the memo, and the keys and names of the questions, which an author chose."""


class Answers(Struct, frozen=True):
    """The client's answers to the questions of a request, of this round and of earlier rounds."""

    by_key: Mapping[str, JSON] = {}
    consents: Mapping[str, float] = {}
    """The questions for consent that the server has asked in this request, and the times when the answers expire."""
    state_digest: str = ""
    """The digest of the sealed state that came with the request."""
    drafts: Mapping[str, dict[str, JSON]] = {}
    """The fields of forms of which required fields are missing, so that the server asks again."""
    memo: JSON = None
    """What the function left for this round; see `InputPending`."""

    @property
    def refusal(self) -> str | None:
        """What the client did with a question that it did not answer: "decline" or "cancel"."""
        actions = (answer.get("action") for answer in self.by_key.values() if isinstance(answer, dict))
        return next((action for action in actions if action in ("decline", "cancel")), None)


_NO_ANSWERS = Answers()


class _SealedAnswers(Struct, array_like=True):
    by_key: dict[str, JSON]
    consents: dict[str, float]
    questions: list[Question] = []
    drafts: dict[str, dict[str, JSON]] = {}
    memo: JSON = None


class RequestState:
    """Opens and seals `requestState`, which is valid only for its caller and its request."""

    def __init__(self, seal: Seal, seconds: float) -> None:
        """`seconds` is the time for which a question for consent can be answered and its answer be used."""
        self._seal = seal
        self._seconds = seconds

    def read_answers(
        self, inputs: Inputs, caller: Caller, request: list[JSON], asks_again: bool = False
    ) -> Answers | Failure:
        """Returns the client's answers, those of this round and those of earlier rounds in the sealed state.

        It leaves out answers to questions for consent that the server did not ask, by the sealed state, in this request
        and within the time. Other answers need no state, because they are the client's word in any case.

        With `asks_again`, a form without its required fields counts as not answered (MCP-lite); else the function is
        told that it does not fit.
        """
        if inputs is NO_INPUTS:
            return _NO_ANSWERS
        earlier = _SealedAnswers({}, {})
        digest = ""
        if inputs.state is not None:
            found = None
            if len(inputs.state) <= _MAX_STATE_CHARS:
                found = self._seal.open(inputs.state, _binding(caller, request))
            if found is None:
                return Failure(
                    Fault.INVALID_PARAMS,
                    "params.requestState is not valid for this request; send the request without it.",
                )
            earlier = msgspec.convert(found, _SealedAnswers)
            digest = hashlib.sha256(inputs.state.encode()).hexdigest()
        now = time.time()
        consents = {key: expires for key, expires in earlier.consents.items() if expires >= now}
        found_answers = read_responses(earlier.questions, inputs, earlier.drafts, asks_again)
        by_key = {
            key: answer
            for key, answer in {**earlier.by_key, **found_answers.responses}.items()
            if key in consents or not key.startswith(CONSENT_PREFIX)
        }
        return Answers(by_key, consents, digest, found_answers.drafts, earlier.memo)

    def ask(
        self, pending: InputPending, caller: Caller, request: list[JSON], answers: Answers
    ) -> InputRequired | Failure:
        """Returns the outcome that makes the client send its request again, with answers to the pending questions.

        It is a failure if the answers so far are too large to go to the client and back.
        """
        memo = answers.memo if pending.memo is None else pending.memo
        sealed = self._close(pending.requests, caller, request, answers, memo)
        return sealed if isinstance(sealed, Failure) else InputRequired(pending.requests, sealed, memo)

    def ask_for_resource(
        self, needs: NeedsResource, caller: Caller, request: list[JSON], answers: Answers
    ) -> ResourceRequired | Failure:
        """Returns the outcome that makes the client send its request again once it can grant more of a resource."""
        sealed = self._close({}, caller, request, answers, answers.memo)
        if isinstance(sealed, Failure):
            return sealed
        needed = NeededResource(needs.kind, needs.required, needs.available, needs.unit)
        return ResourceRequired(str(needs), [needed], sealed)

    def _close(
        self,
        requests: Mapping[str, InputRequest],
        caller: Caller,
        request: list[JSON],
        answers: Answers,
        memo: JSON,
    ) -> str | Failure:
        drafts = len(msgspec.json.encode(answers.drafts)) if answers.drafts else 0
        by_key = {key: answer for key, answer in answers.by_key.items() if key not in requests}  # else it is asked anew
        if len(msgspec.json.encode(by_key)) + drafts > _MAX_ANSWER_BYTES:
            return Failure(
                Fault.INVALID_PARAMS,
                f"The answers to the questions of one request may have {_MAX_ANSWER_BYTES:,} bytes; answer with less.",
            )
        if memo is not None and len(msgspec.json.encode(memo)) > _MAX_MEMO_BYTES:
            return Failure(Fault.INTERNAL, "The questions of this request are too large to be asked.")
        expires = time.time() + self._seconds
        consents = {key: expires for key in requests if key.startswith(CONSENT_PREFIX)}
        sealed = [
            by_key,
            {**answers.consents, **consents},
            list_questions(requests),
            dict(answers.drafts),
            memo,
        ]
        return self._seal.close(sealed, _binding(caller, request))


def _binding(caller: Caller, request: list[JSON]) -> bytes:
    return hashlib.sha256(msgspec.json.encode([caller.principal.key, *request], order="deterministic")).digest()


class PromisedRun(Struct, frozen=True):
    """A run of a call behind a promise: the call was checked and counted before, and its client does not wait."""

    id: str
    """Identifies the promise for the author; it cannot be redeemed."""
    attempt: int
    answers: Answers
    seconds: float
    """The deadline of an operation that sets none."""
    sent_arguments: dict[str, JSON]
    """The arguments as the client sent them, to which the state is bound that it gets."""
    conversation: str | None = None
    """The digest of the conversation that the call was made in."""


class RequestContext(Struct):
    """The terms of a request, its caller's view of the catalog, and the channel to its client."""

    terms: Terms
    view: View
    channel: Channel
    request_id: RequestId
    promise: PromisedRun | None = None
    session: SessionContext | None = None
    """What the client carries from request to request; None unless a function has a `Context`."""
    memo: JSON = None
    """What the function left in the round before, when it asked questions."""
    shared: RequestProgress | None = None
    """What all contexts of the request share; None unless a function has a `Context`."""


async def accept_since(request: RequestContext, changes: ChangeDelivery) -> str | Failure | None:
    """Returns the root, in a request's `_meta`, of the answer that the client has; None if the request has no root.

    If the client sends a reset instead of a root, the server forgets what it has sent to the client.
    """
    try:
        root = requested_since(request.terms.meta)
    except UsageError as error:
        return Failure(Fault.INVALID_PARAMS, str(error))
    await changes.accept_since(root, request.terms.caller)
    return root
