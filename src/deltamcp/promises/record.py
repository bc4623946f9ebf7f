"""The record of a promise: its token, the table of its states, and its changes as functions that return the next one.

The store has the record under the key of the promise. What it does not have lies beside it (`stored_call.py`): the call
until it ends, and its outcome from then on.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from deltamcp.dialects.questions import find_misfit, list_questions, read_responses
from deltamcp.values import JSON, InputRequest, Inputs, Outcome, Promise, PromiseStatus

_FORMAT = 1
_MESSAGE_CHARS = 1000
_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.25, 5.0

_S = PromiseStatus
NEXT: Mapping[PromiseStatus, frozenset[PromiseStatus]] = MappingProxyType(
    {
        _S.QUEUED: frozenset({_S.WORKING, _S.FAILED, _S.CANCELLED}),
        # Queued again where the worker died or stops, and the call may run once more.
        _S.WORKING: frozenset({_S.QUEUED, _S.INPUT_REQUIRED, _S.COMPLETED, _S.FAILED, _S.CANCELLED}),
        _S.INPUT_REQUIRED: frozenset({_S.QUEUED, _S.FAILED, _S.CANCELLED}),
        _S.COMPLETED: frozenset(),
        _S.FAILED: frozenset(),
        _S.CANCELLED: frozenset(),
    }
)
"""The states that may follow each state. A final state never changes."""


class PromiseRecord(Struct, frozen=True, omit_defaults=True):
    """What every replica knows of a promise. Times are in seconds since 1970."""

    owner: str
    """The digest of the principal that made the call; others are told that there is no such promise."""
    account: str
    """The account of the caller, towards which the call and its outcome count."""
    operation: str
    """The name of the operation."""
    scopes: tuple[str, ...]
    """The scopes of the operation, which also who asks about the call needs."""
    catalog: str
    """The digest of the operation's definition when the call was made."""
    place: str
    """Where the store has the call."""
    created_at: float
    updated_at: float
    expires_at: float
    latest_expiry: float
    """`expires_at` never goes beyond this."""
    status: PromiseStatus = PromiseStatus.QUEUED
    revision: int = 0
    """Increases with every change."""
    attempt: int = 0
    """The number of the run that is in progress, or was the last."""
    started_at: float = 0.0
    """When that run began."""
    worker: str = ""
    """The process that has that run."""
    may_rerun: bool = False
    """Whether the call may run once more after a worker died over it."""
    deaths: int = 0
    """How many workers have died over it."""
    progress: float | None = None
    total: float | None = None
    message: str | None = None
    questions: dict[str, InputRequest] = {}
    """The questions that the client has yet to answer."""
    drafts: dict[str, dict[str, JSON]] = {}
    """The fields of forms of which required fields are still missing."""
    answers: dict[str, JSON] = {}
    memo: JSON = None
    """What the run that asked left for the next one; see `InputPending`."""
    cancel_requested: bool = False
    outcome: str = ""
    """The name under which the store has the outcome, once the call has ended with one."""
    format: int = _FORMAT

    def is_expired(self, now: float) -> bool:
        return now >= self.expires_at

    @property
    def next_run(self) -> int:
        return self.attempt + 1


_encoder = msgspec.json.Encoder()  # not MessagePack, whose integers have 64 bits: answers are any JSON
_decoder = msgspec.json.Decoder(PromiseRecord)


def encode(record: PromiseRecord) -> bytes:
    return _encoder.encode(record)


def decode(data: bytes) -> PromiseRecord | None:
    """Returns a record; None if another version of this library wrote it."""
    try:
        record = _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return record if record.format == _FORMAT else None


def snapshot(record: PromiseRecord, token: str, now: float, outcome: Outcome | None = None) -> Promise:
    """Returns the promise as its client sees it."""
    return Promise(
        token,
        record.status,
        record.created_at,
        record.updated_at,
        record.expires_at,
        min(max((now - record.created_at) / 4, _MIN_RETRY_SECONDS), _MAX_RETRY_SECONDS),
        record.progress,
        record.total,
        "Cancelling." if record.cancel_requested and not record.status.is_final else record.message,
        record.questions,
        outcome,
    )


# Changes


def start(record: PromiseRecord, attempt: int, worker: str, now: float, seconds: float) -> PromiseRecord | None:
    """A worker begins the run with this number; `seconds` is how long the promise can be redeemed from now at least."""
    if record.status is not PromiseStatus.QUEUED or record.next_run != attempt or record.is_expired(now):
        return None
    return replace(
        _extend(record, now + seconds),
        status=PromiseStatus.WORKING,
        attempt=attempt,
        worker=worker,
        started_at=now,
        progress=None,
        total=None,
        message=None,
    )


def report(
    record: PromiseRecord, attempt: int, progress: float, total: float | None, message: str | None
) -> PromiseRecord | None:
    """The run with this number has come so far."""
    if not is_run(record, attempt):
        return None
    return replace(record, progress=progress, total=total, message=message and message[:_MESSAGE_CHARS])


def ask(
    record: PromiseRecord,
    attempt: int,
    questions: Mapping[str, InputRequest],
    now: float,
    seconds: float,
    memo: JSON = None,
) -> PromiseRecord | None:
    """The run with this number ends with questions, which may be answered for at least so many seconds.

    The answer to a question that is asked again did not fit, and goes.
    """
    if not is_run(record, attempt) or not questions:
        return None
    if record.cancel_requested:
        return end(replace(record, memo=memo), PromiseStatus.CANCELLED, "", now, seconds)
    return replace(
        _extend(record, now + seconds),
        status=PromiseStatus.INPUT_REQUIRED,
        questions=dict(questions),
        answers={key: given for key, given in record.answers.items() if key not in questions},
        memo=memo,
        worker="",
    )


def answer(record: PromiseRecord, inputs: Inputs, asks_again: bool = False) -> PromiseRecord | None:
    """The client has answered questions; once all are answered, the call is queued again.

    Answers to questions that are not open are ignored. With `asks_again`, a form without a required field stays open.
    """
    if record.status is not PromiseStatus.INPUT_REQUIRED:
        return None
    found = read_responses(list_questions(record.questions), inputs, record.drafts, asks_again)
    given = {key: value for key, value in found.responses.items() if key in record.questions}
    if not given and found.drafts == record.drafts:
        return None
    left = {key: question for key, question in record.questions.items() if key not in given}
    return replace(
        record,
        status=PromiseStatus.INPUT_REQUIRED if left else PromiseStatus.QUEUED,
        questions=left,
        drafts={key: fields for key, fields in found.drafts.items() if key in left},
        answers={**record.answers, **given},
    )


def answer_problem(record: PromiseRecord, inputs: Inputs, asks_again: bool = False) -> str | None:
    """Returns which answer does not fit its question and why; None if the answers can be taken."""
    if record.status is not PromiseStatus.INPUT_REQUIRED:
        return None
    found = read_responses(list_questions(record.questions), inputs, record.drafts, asks_again)
    return find_misfit(record.questions, found)


def finish(
    record: PromiseRecord, attempt: int, status: PromiseStatus, outcome: str, now: float, seconds: float
) -> PromiseRecord | None:
    """The run with this number has ended; its outcome can be redeemed for at least so many seconds."""
    if not is_run(record, attempt):
        return None
    return end(record, status, outcome, now, seconds)


def end(record: PromiseRecord, status: PromiseStatus, outcome: str, now: float, seconds: float) -> PromiseRecord | None:
    """The call ends in a final state, whether it ran or not; what the memo of a cancelled one names can be ended."""
    if status not in NEXT[record.status] or not status.is_final:
        return None
    return replace(
        _extend(record, now + seconds),
        status=status,
        outcome=outcome,
        questions={},
        drafts={},
        answers={},
        memo=record.memo if status is PromiseStatus.CANCELLED else None,
        worker="",
    )


def requeue(record: PromiseRecord, attempt: int, died: bool) -> PromiseRecord | None:
    """The worker of the run with this number has died or stops, and the call is to run once more."""
    if not is_run(record, attempt):
        return None
    return replace(record, status=PromiseStatus.QUEUED, worker="", deaths=record.deaths + died)


def cancel(record: PromiseRecord, now: float, seconds: float) -> PromiseRecord | None:
    """The client wants no outcome: a call that does not run ends at once, one that does is asked to."""
    if record.status.is_final or record.cancel_requested:
        return None
    requested = replace(record, cancel_requested=True)
    if record.status is PromiseStatus.WORKING:
        return requested
    return end(requested, PromiseStatus.CANCELLED, "", now, seconds)


def withdraw(record: PromiseRecord, now: float, seconds: float) -> PromiseRecord | None:
    """The call is not to run; None if a worker has begun it."""
    return end(record, PromiseStatus.CANCELLED, "", now, seconds) if record.status is PromiseStatus.QUEUED else None


def is_run(record: PromiseRecord, attempt: int) -> bool:
    return record.status is PromiseStatus.WORKING and record.attempt == attempt


def _extend(record: PromiseRecord, until: float) -> PromiseRecord:
    """What a client was told of the expiry stays true: it moves later only."""
    return replace(record, expires_at=max(record.expires_at, min(until, record.latest_expiry)))


_PREFIX = "prom_"
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32 in one case, which models copy reliably."""
_COUNT = 26
_TOKEN = re.compile(f"{_PREFIX}[{_DIGITS}]{{{_COUNT}}}")
_SHOWN_DIGITS = 8


def make_token() -> str:
    """Returns a new token: 130 random bits, and nothing that says more of the promise."""
    return _PREFIX + "".join(secrets.choice(_DIGITS) for _ in range(_COUNT))


def key_of(token: str) -> str | None:
    """Returns the key of a token, which does not reveal the token; None for a text that is no token."""
    return hashlib.sha256(token.encode()).hexdigest() if _TOKEN.fullmatch(token) else None


def shown_key(key: str) -> str:
    """Returns what logs show of a key."""
    return key[:_SHOWN_DIGITS]
