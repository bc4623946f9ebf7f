"""The call behind a promise, as the store has it until the call ends: what to run, for whom, on which terms."""

import hashlib

import msgspec
from msgspec import Struct

from deltamcp.conversation_state import conversation_digest
from deltamcp.delivery.delivery import ResultOverride
from deltamcp.results.policy import RequestPolicy
from deltamcp.values import ANONYMOUS, JSON, LOCAL, Caller, Era, Principal, ResultShape, Surface, Terms


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


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(PromisedCall)


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


def encode(call: PromisedCall) -> bytes:
    """
    Raises:
        ValueError: the arguments or the claims contain something that JSON cannot express.
    """
    try:
        return _encoder.encode(call)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def decode(data: bytes) -> PromisedCall | None:
    """Returns a call; None if another version of this library wrote it."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def owner_digest(caller: Caller) -> str:
    """Returns what identifies the principal of a caller in a record; a principal named "local" is not the local one."""
    text = f"{_origin(caller.principal)}\0{caller.principal.key}"
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _origin(principal: Principal) -> str:
    return "local" if principal is LOCAL else "open" if principal is ANONYMOUS else "named"
