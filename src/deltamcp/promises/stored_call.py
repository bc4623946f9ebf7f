"""The call behind a promise as the store has it: what to run, for whom, on which terms; and its outcome."""

import hashlib

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from deltamcp.context import conversation_digest
from deltamcp.delivery.delivery import ResultOverride
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
    NeededResource,
    Outcome,
    Principal,
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


def owner_digest(caller: Caller) -> str:
    """Returns what identifies the principal of a caller in a record; a principal named "local" is not the local one."""
    text = f"{_origin(caller.principal)}\0{caller.principal.key}"
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _origin(principal: Principal) -> str:
    return "local" if principal is LOCAL else "open" if principal is ANONYMOUS else "named"


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
