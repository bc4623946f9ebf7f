"""What the store has of a promise: its record, with the table of its states, its call and its outcome.

The record is under the key of the promise, and changes by functions that return the next one. Beside it lies the call
until it ends (what to run, for whom, on which terms), and its outcome from then on: every redemption returns the same.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from deltamcp.context import conversation_digest
from deltamcp.delivery.delivery import ResultOverride
from deltamcp.dialects.questions import find_misfit, list_questions, read_responses
from deltamcp.errors import Fault
from deltamcp.results.policy import RequestPolicy
from deltamcp.values import (
    ANONYMOUS,
    JSON,
    LOCAL,
    Annotations,
    Answer,
    Audio,
    BlobResource,
    Caller,
    Content,
    EmbeddedResource,
    Era,
    ErrorInfo,
    Failure,
    Image,
    InputRequest,
    Inputs,
    NeededResource,
    Outcome,
    Principal,
    Promise,
    PromiseStatus,
    RawResult,
    ResourceLink,
    ResourceRequired,
    ResultShape,
    Surface,
    Terms,
    Text,
    TextResource,
    ToolResult,
)
from deltamcp.wire import jsonrpc

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


def owner_digest(caller: Caller) -> str:
    """Returns what identifies the principal of a caller in a record; a principal named "local" is not the local one."""
    text = f"{_origin(caller.principal)}\0{caller.principal.key}"
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _origin(principal: Principal) -> str:
    return "local" if principal is LOCAL else "open" if principal is ANONYMOUS else "named"


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


class _PromisedPrincipal(Struct, frozen=True, omit_defaults=True):
    origin: str
    id: str
    scopes: list[str] = []
    claims: dict[str, JSON] = {}
    issuer: str = ""
    step_up: list[str] = []

    def restore(self) -> Principal:
        match self.origin:
            case "local":
                return LOCAL
            case "open":
                return ANONYMOUS
            case _:
                return Principal(self.id, frozenset(self.scopes), self.claims, self.issuer, frozenset(self.step_up))


class _Override(Struct, frozen=True, omit_defaults=True):
    policy: RequestPolicy
    note: str = ""
    pages: int = 1


class PromisedCall(Struct, frozen=True, omit_defaults=True):
    """A call that was checked and can run in any process of the server."""

    key: str
    """The key of the promise: another call may have taken this one's place."""
    name: str
    """The name that the caller used."""
    arguments: dict[str, JSON]
    """As sent, with the values of references in their place."""
    principal: _PromisedPrincipal
    account: str
    shares_handles: bool
    era: Era
    version: str
    capabilities: dict[str, JSON]
    client: dict[str, JSON]
    meta: dict[str, JSON]
    surface: Surface | None
    result_shape: ResultShape
    unresolved: dict[str, JSON] | None = None
    """The arguments with their references; None if there are none."""
    override: _Override | None = None
    """What the meta-tool that runs the operation says of its result."""
    trace: dict[str, str] = {}
    """The trace context of the HTTP request, by the names of headers."""
    http_request_id: str = ""
    conversation: str | None = None
    """The digest of the conversation that it was made in, for the state that functions keep of it."""

    def terms(self, result_seconds: float) -> Terms:
        """Returns the terms on which the call runs: those of its request, but outside of any conversation.

        A reply that nobody has fetched is no base for changes. `result_seconds` is how long what is stored of the
        result must stay.
        """
        caller = Caller(
            self.principal.restore(),
            shares_handles=self.shares_handles,
            account=self.account,
            result_seconds=result_seconds,
        )
        return Terms(
            self.era,
            self.version,
            self.capabilities,
            self.client,
            self.meta,
            None,
            caller,
            self.surface,
            self.result_shape,
        )

    def result_override(self) -> ResultOverride | None:
        return (
            None
            if self.override is None
            else ResultOverride(self.override.policy, self.override.note, self.override.pages)
        )


_call_decoder = msgspec.json.Decoder(PromisedCall)


def make_promised_call(
    key: str,
    name: str,
    arguments: dict[str, JSON],
    unresolved: dict[str, JSON] | None,
    terms: Terms,
    override: ResultOverride | None,
    trace: dict[str, str],
    http_request_id: str,
) -> PromisedCall:
    """Returns the call with all that it needs of the request's terms."""
    caller, principal = terms.caller, terms.caller.principal
    kept_override = None
    if override is not None:
        policy = msgspec.convert(msgspec.to_builtins(override.policy), RequestPolicy)
        kept_override = _Override(policy, override.note, override.pages)
    return PromisedCall(
        key,
        name,
        arguments,
        _PromisedPrincipal(
            _origin(principal),
            principal.id,
            sorted(principal.scopes),
            principal.claims,
            principal.issuer,
            sorted(principal.step_up),
        ),
        caller.account,
        caller.shares_handles,
        terms.era,
        terms.version,
        terms.capabilities,
        terms.client,
        terms.meta,
        terms.surface,
        terms.result_shape,
        unresolved,
        kept_override,
        trace,
        http_request_id,
        conversation_digest(caller),
    )


def encode_call(call: PromisedCall) -> bytes:
    """
    Raises:
        ValueError: the arguments or the claims contain something that JSON cannot express.
    """
    try:
        return msgspec.json.encode(call)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def decode_call(data: bytes) -> PromisedCall | None:
    """Returns a call; None if another version of this library wrote it."""
    try:
        return _call_decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


class _Block(Struct):
    type: str
    resource: Raw = Raw(b"")


class _EmbeddedText(Struct):
    resource: TextResource
    annotations: Annotations | None = None
    meta: dict[str, JSON] | None = msgspec.field(default=None, name="_meta")


class _EmbeddedBlob(Struct):
    resource: BlobResource
    annotations: Annotations | None = None
    meta: dict[str, JSON] | None = msgspec.field(default=None, name="_meta")


class _Result(Struct, tag="result", omit_defaults=True):
    content: list[Raw]
    structured: JSON | UnsetType = UNSET
    is_error: bool = False
    meta: dict[str, JSON] | None = None
    error: ErrorInfo | None = None


class _Failure(Struct, tag="failure", omit_defaults=True):
    fault: str
    message: str
    data: JSON | UnsetType = UNSET
    retry_seconds: float = 0.0
    missing_scopes: list[str] = []
    granted_scopes: list[str] = []
    code: int = 0


class _NeedsResource(Struct, tag="resource", omit_defaults=True):
    message: str
    resources: list[NeededResource]
    state: str | None = None


class _Raw(Struct, tag="raw"):
    encoded: Raw
    """The bytes of another server's result, which stay as they are."""


_outcome_decoder: msgspec.json.Decoder[_Result | _Raw | _Failure | _NeedsResource] = msgspec.json.Decoder(
    _Result | _Raw | _Failure | _NeedsResource
)
_decode_block = msgspec.json.Decoder(_Block).decode
_decode_text = msgspec.json.Decoder(_EmbeddedText).decode
_decode_blob = msgspec.json.Decoder(_EmbeddedBlob).decode
_plain_decoder: msgspec.json.Decoder[Text | Image | Audio | ResourceLink] = msgspec.json.Decoder(
    Text | Image | Audio | ResourceLink
)


def encode_outcome(outcome: Outcome) -> bytes:
    """
    Raises:
        ValueError: the outcome contains something that JSON cannot express.
    """
    match outcome:
        case Answer(ToolResult(content, structured, is_error, meta, error)):
            blocks = [Raw(jsonrpc.encode(block)) for block in content]
            return jsonrpc.encode(_Result(blocks, structured, is_error, meta, error))
        case Answer(RawResult(encoded)):
            return jsonrpc.encode(_Raw(Raw(encoded)))
        case Failure(fault, message, data, retry_seconds, missing, granted, code):
            failure = _Failure(fault.name, message, data, retry_seconds, sorted(missing), sorted(granted), code)
            return jsonrpc.encode(failure)
        case ResourceRequired(message, resources, state):
            return jsonrpc.encode(_NeedsResource(message, resources, state))
        case _:
            raise AssertionError(f"{type(outcome).__name__} is not the outcome of a call that has ended")


def decode_outcome(data: bytes) -> Outcome:
    """
    Raises:
        ValueError: another version of this library wrote it.
    """
    try:
        stored = _outcome_decoder.decode(data)
        match stored:
            case _Result():
                content = [_read_block(block) for block in stored.content]
                return Answer(ToolResult(content, stored.structured, stored.is_error, stored.meta, stored.error))
            case _Raw():
                return Answer(RawResult(bytes(stored.encoded), msgspec.json.decode(stored.encoded)))
            case _Failure():
                return Failure(
                    Fault[stored.fault],
                    stored.message,
                    stored.data,
                    stored.retry_seconds,
                    frozenset(stored.missing_scopes),
                    frozenset(stored.granted_scopes),
                    stored.code,
                )
            case _NeedsResource():
                return ResourceRequired(stored.message, stored.resources, stored.state)
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError) as error:
        raise ValueError(str(error)) from None


def _read_block(data: Raw) -> Content:
    block = _decode_block(data)
    if block.type != "resource":
        return _plain_decoder.decode(data)
    is_text = "text" in msgspec.json.decode(block.resource)
    embedded = _decode_text(data) if is_text else _decode_blob(data)
    return EmbeddedResource(embedded.resource, embedded.annotations, embedded.meta)
