"""The frozen values that the layers pass to each other. This module imports none of the layers.

In the order of a request: the wire layer reads bytes as a `Message`; a dialect reads the message as `Terms` (who sent
it, by which protocol version) and an `Ask` (what the client requests); the engine returns an `Outcome`; and the same
dialect writes the outcome as bytes.

Values that are made for every call have `gc=False`: they contain JSON, which has no cycles, and untracked values cost
less.
"""

import enum
import math
from typing import Any, Literal, TypeAlias, final

from msgspec import UNSET, Struct, UnsetType, field

from deltamcp.errors import Fault

JSON: TypeAlias = Any
"""A JSON value in Python: dict, list, str, int, float, bool or None."""

RequestId: TypeAlias = int | str
Role: TypeAlias = Literal["user", "assistant"]
LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


# Messages


class Request(Struct, frozen=True, gc=False):
    """A JSON-RPC request. Its receiver sends exactly one response."""

    id: RequestId
    method: str
    params: dict[str, JSON]


class Notification(Struct, frozen=True):
    """A JSON-RPC notification. It has no response."""

    method: str
    params: dict[str, JSON]


class Response(Struct, frozen=True):
    """The response of a peer to a request."""

    id: RequestId
    result: JSON = None
    error: dict[str, JSON] | None = None
    body: bytes = b""
    """The whole message as it came, if it is a server's and plain JSON, for those who pass its result on."""


class Malformed(Struct, frozen=True):
    """Bytes that are no valid message, and the reason; `id` is set if it could be read."""

    fault: Fault
    reason: str
    id: RequestId | None = None


Message: TypeAlias = Request | Notification | Response | Malformed


# Callers and their terms


class Principal(Struct, frozen=True):
    """The user or system that a request is made for, as authentication identified it."""

    id: str
    """Its name at the issuer: the subject of a token."""
    scopes: frozenset[str] = frozenset()
    """What it may do."""
    claims: dict[str, JSON] = {}
    """What else its token says."""
    issuer: str = ""
    """Who vouches for the id, such as an authorization server; ids of different issuers are different principals."""
    step_up: frozenset[str] = frozenset()
    """The scopes that it can ask for when it needs them; operations that lack only these are listed for it."""
    expires_at: float = math.inf
    """When its token expires, in seconds since 1970; streams end then."""

    @property
    def key(self) -> str:
        """A text that no other principal has: two issuers may use the same id."""
        if self.issuer:
            return f"{self.issuer.replace('%', '%25').replace(' ', '%20')} {self.id}"
        return f" {self.id}" if " " in self.id else self.id  # else it could read as an issuer and an id

    @property
    def owner(self) -> str:
        """A text that nobody else has, nor the local user, nor those whom nobody authenticates: `key` may be theirs."""
        if self is LOCAL:
            return "local user"
        return "anybody" if self is ANONYMOUS else f"principal {self.key}"

    @property
    def is_authenticated(self) -> bool:
        """Whether anybody vouches for it."""
        return self.key not in ("anonymous", "local")


ANONYMOUS = Principal("anonymous")
"""The principal of HTTP requests without authentication."""
LOCAL = Principal("local")
"""The principal of requests over stdio and in memory: the user who started this process."""


class Caller(Struct, frozen=True, gc=False):
    """The sender of a request, as far as the server can tell callers apart. `Engine.identify` makes it."""

    principal: Principal
    """The user or system that the request is made for."""
    connection: str | None = None
    """The id of the connection or session; None where the protocol has none. Several conversations may share it."""
    shares_handles: bool = False
    """Whether the server cannot tell this caller from others, so that its handles must be impossible to guess."""
    account: str = ""
    """Whose quotas and rates the caller counts towards; what a caller may read does not depend on it."""
    moves: bool = False
    """Whether the next request of the conversation may reach another replica."""
    result_seconds: float = 0.0
    """How long what is stored of its results stays at least, though nobody reads it: as long as its promise."""
    conversation: str | None = None
    """The conversation of one model, whose replies all reach that model; None where the server cannot know it."""

    @property
    def has_short_handles(self) -> bool:
        """Whether only the local user can guess at its handles, so that they may be short."""
        return self.principal is LOCAL and not self.shares_handles

    @property
    def is_anonymous(self) -> bool:
        """Whether the caller did not authenticate."""
        return self.principal.key == ANONYMOUS.key

    @property
    def is_remembered(self) -> bool:
        """Whether the server knows what the model was sent before.

        It does in a known conversation only: a principal, a connection and a host's process may have several, and each
        has only what it was sent itself.
        """
        return self.conversation is not None

    @property
    def stays(self) -> bool:
        """Whether this process serves the whole conversation, and so knows every row and symbol that was sent in it."""
        return self.conversation is not None and not self.moves


ANONYMOUS_CALLER = Caller(ANONYMOUS, shares_handles=True)
"""The caller of a request that stands alone on an open port."""


class Era(enum.Enum):
    """The two kinds of protocol versions, by where a client states its version and capabilities."""

    HANDSHAKE = "handshake"
    """Once, in `initialize`: 2024-11-05 to 2025-11-25."""
    MODERN = "modern"
    """In every request: since 2026-07-28."""


class Surface(enum.Enum):
    """What `tools/list` shows of the tools."""

    FULL = "full"
    """Every tool with its schema."""
    PROGRESSIVE = "progressive"
    """Names and summaries; `tools/describe` returns the rest. Only for clients that negotiated it."""
    META = "meta"
    """Four meta-tools, which find, describe and run all other tools."""


class ResultShape(enum.StrEnum):
    """The protocol whose result format a client expects; `delivery/` has a class for each."""

    MCP = "mcp"
    DELTA_MCP = "delta-mcp"
    """JSON in one text; clients request pages by the arguments `page` and `pageSize`."""
    MCP_LITE = "mcp-lite"
    """As MCP's; lists have MCP-lite's `redeem` and `@type`."""


class Terms(Struct, frozen=True, gc=False):
    """The caller of a request, with the protocol version, capabilities and options that apply to it."""

    era: Era
    version: str
    capabilities: dict[str, JSON]
    client: dict[str, JSON]
    meta: dict[str, JSON]
    """The request's `_meta`, untouched."""
    log_level: LogLevel | None = None
    """The lowest level of log messages that the client wants; None if it wants none."""
    caller: Caller = ANONYMOUS_CALLER
    surface: Surface | None = None
    """The surface that the client negotiated; None leaves the choice to the server."""
    result_shape: ResultShape = ResultShape.MCP
    asks_through_model: bool = False
    """Whether questions to the user become results that ask the model to pass them on."""


SERVER_KEY = "io.modelcontextprotocol/serverInfo"
"""The key in the `_meta` of a result under which MCP 2026-07-28 names the server."""
SESSION_CONTEXT_KEY = "session_context"
"""The key, in the `_meta` of a request and of its result, of what the client carries for the application."""


# Asks


class Inputs(Struct, frozen=True):
    """The client's answers in a request that it sends again, and the state that the server sealed for it."""

    responses: dict[str, JSON] = {}
    state: str | None = None
    fields: dict[str, JSON] = {}
    """Answers by the ids of questions (`dialects/questions.py`), from MCP-lite clients that do not use the keys."""
    action: Literal["accept", "decline", "cancel"] | None = None
    """What an MCP-lite client does with all pending questions; None if only its answers tell."""


NO_INPUTS = Inputs()
ANSWERS_KEY = "$answers"
"""The argument in which a model passes on a user's answers; it has the form of `$result`, which no tool's own has."""


class PromiseWish(Struct, frozen=True):
    """Says that the client takes a promise in place of the result of its call."""

    at_once: bool = False
    """Whether the client asks for a promise and not for the result, however soon that comes (2025-11-25's `task`)."""
    seconds: float | None = None
    """For how long the client would like to redeem it; None leaves that to the server."""
    idempotency_key: str | None = None
    """The client's name for the call: asked again under the same name, the server returns the same promise."""
    reply_seconds: float | None = None
    """The time in which the client wants a reply, be it the promise; None leaves that to the tool's `sync_seconds`."""


PROMISE_ALLOWED = PromiseWish()
PROMISES_KEY = "io.github.delta-mcp/promises"
"""The key of a definition's `_meta` that is true if the server may promise results, and knows calls by their names."""
TAGS_KEY = "io.github.delta-mcp/tags"
"""The key of an item's `_meta` that has its tags."""


class CallTool(Struct, frozen=True, gc=False):
    """`tools/call`."""

    name: str
    arguments: dict[str, JSON]
    inputs: Inputs = NO_INPUTS
    promise: PromiseWish | None = None
    """None if the client takes no promise, so that it waits for the result."""


class RedeemPromise(Struct, frozen=True):
    """MCP-lite's `redeem`, and `tasks/result` (2025-11-25): the outcome of the call, or the promise if it goes on."""

    token: str
    wait_seconds: float | None = 0.0
    """How long to wait for the outcome; None waits until there is one."""
    inputs: Inputs = NO_INPUTS
    """Answers to the questions of the call."""


class GetPromise(Struct, frozen=True):
    """`tasks/get`, and `redeem` with the action "status"."""

    token: str


class AnswerPromise(Struct, frozen=True):
    """`tasks/update` (2026-07-28): answers to the questions of the call."""

    token: str
    inputs: Inputs


class CancelPromise(Struct, frozen=True):
    """`tasks/cancel`, and `redeem` with the action "cancel"."""

    token: str


class ReadResource(Struct, frozen=True):
    """`resources/read`."""

    uri: str
    inputs: Inputs = NO_INPUTS


class GetPrompt(Struct, frozen=True):
    """`prompts/get`."""

    name: str
    arguments: dict[str, str | None]
    inputs: Inputs = NO_INPUTS


class Complete(Struct, frozen=True):
    """`completion/complete`."""

    kind: Literal["prompt", "template"]
    target: str
    """The name of the prompt, or the URI template of the resource."""
    argument: str
    value: str
    context: dict[str, str]


class Kind(enum.Enum):
    """The kinds of lists; the value is the key of the list in the result."""

    TOOLS = "tools"
    RESOURCES = "resources"
    TEMPLATES = "resourceTemplates"
    PROMPTS = "prompts"


class ListItems(Struct, frozen=True):
    """`tools/list`, `resources/list`, `resources/templates/list` or `prompts/list`."""

    kind: Kind
    cursor: str | None = None
    whole: bool = False
    """Whether to put the list on one page, for a client that has no cursors."""
    type: str | None = None
    """MCP-lite: lists only the tools of this `@type`, on one page."""
    query: str | None = None
    """MCP-lite: lists only the tools that a search finds, best first and on one page."""


class Describe(Struct, frozen=True):
    """`tools/describe`: the full definitions of tools, by name."""

    names: tuple[str, ...]
    alone: bool
    """Whether the client sent one `name`, so that the definition is the result itself."""


class ListManifest(Struct, frozen=True):
    """`tools/manifest`: the digest and size of every tool (SEP-2636)."""

    cursor: str | None = None


class Discover(Struct, frozen=True):
    """`server/discover`: the server's versions, capabilities and instructions."""


class Ping(Struct, frozen=True):
    """`ping`; its result is empty."""


class SetLevel(Struct, frozen=True):
    """`logging/setLevel`."""

    level: LogLevel


class Watch(Struct, frozen=True):
    """`resources/subscribe` if `on`, else `resources/unsubscribe`."""

    uri: str
    on: bool


class Filter(Struct, frozen=True):
    """The changes that a client subscribes to: of lists, of resources by URI, and of promises by token."""

    kinds: frozenset[Kind] = frozenset()
    uris: frozenset[str] = frozenset()
    tokens: frozenset[str] = frozenset()


class Listen(Struct, frozen=True):
    """`subscriptions/listen`."""

    filter: Filter


PromiseAsk: TypeAlias = RedeemPromise | GetPromise | AnswerPromise | CancelPromise
"""The asks about a call that the server goes on with after its reply."""
EngineAsk: TypeAlias = (
    CallTool | ReadResource | GetPrompt | Complete | ListItems | Describe | ListManifest | Discover | Ping | PromiseAsk
)
"""The asks that the engine performs."""
SessionAsk: TypeAlias = SetLevel | Watch
"""The asks that only change a handshake session."""
Ask: TypeAlias = EngineAsk | SessionAsk | Listen


# Content and results


class Annotations(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Hints on how a client should use content or a resource."""

    audience: list[Role] | None = None
    """Whom it is for: "user", "assistant" or both."""
    priority: float | None = None
    """From 0, optional, to 1, necessary."""
    last_modified: str | None = None
    """When it last changed, in ISO 8601."""


class Icon(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A picture for a server, tool, prompt or resource: an https or data URI."""

    src: str
    """Where the picture is: an https or data URI."""
    mime_type: str | None = None
    """The media type, such as image/png."""
    sizes: list[str] | None = None
    """The sizes it suits: "48x48", or "any"."""
    theme: Literal["light", "dark"] | None = None
    """The background it is for."""


class Text(Struct, frozen=True, gc=False, tag_field="type", tag="text", omit_defaults=True):
    """Plain text."""

    text: str
    """What the model reads."""
    annotations: Annotations | None = None
    """For whom it is and how important, as hints."""
    meta: dict[str, JSON] | None = field(default=None, name="_meta")
    """The `_meta` object of MCP, with keys that no standard has a place for."""


class Image(Struct, frozen=True, tag_field="type", tag="image", rename="camel", omit_defaults=True):
    """An image; `data` is the contents of the file."""

    data: bytes
    """The contents of the file; Base64 is the server's business."""
    mime_type: str
    """The media type, such as image/png."""
    annotations: Annotations | None = None
    """For whom it is and how important, as hints."""
    meta: dict[str, JSON] | None = field(default=None, name="_meta")
    """The `_meta` object of MCP, with keys that no standard has a place for."""


class Audio(Struct, frozen=True, tag_field="type", tag="audio", rename="camel", omit_defaults=True):
    """A sound; `data` is the contents of the file."""

    data: bytes
    """The contents of the file; Base64 is the server's business."""
    mime_type: str
    """The media type, such as image/png."""
    annotations: Annotations | None = None
    """For whom it is and how important, as hints."""
    meta: dict[str, JSON] | None = field(default=None, name="_meta")
    """The `_meta` object of MCP, with keys that no standard has a place for."""


class ResourceLink(Struct, frozen=True, tag_field="type", tag="resource_link", rename="camel", omit_defaults=True):
    """A link to a resource, which the client can read."""

    uri: str
    """Where the client can read it."""
    name: str
    """Its name for programs."""
    title: str | None = None
    """Its name for people."""
    description: str | None = None
    """What it has, for the model."""
    mime_type: str | None = None
    """The media type, such as image/png."""
    size: int | None = None
    """Its bytes before any encoding."""
    icons: list[Icon] | None = None
    """Pictures for it."""
    annotations: Annotations | None = None
    """For whom it is and how important, as hints."""
    meta: dict[str, JSON] | None = field(default=None, name="_meta")
    """The `_meta` object of MCP, with keys that no standard has a place for."""


class TextResource(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The contents of a resource, as text."""

    uri: str
    """Whose contents these are."""
    text: str
    """The contents."""
    mime_type: str | None = None
    """The media type, such as image/png."""
    meta: dict[str, JSON] | None = field(default=None, name="_meta")
    """The `_meta` object of MCP, with keys that no standard has a place for."""


class BlobResource(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The contents of a resource, as bytes."""

    uri: str
    """Whose contents these are."""
    blob: bytes
    """The contents; Base64 is the server's business."""
    mime_type: str | None = None
    """The media type, such as image/png."""
    meta: dict[str, JSON] | None = field(default=None, name="_meta")
    """The `_meta` object of MCP, with keys that no standard has a place for."""


class EmbeddedResource(Struct, frozen=True, tag_field="type", tag="resource", omit_defaults=True):
    """A resource whose contents are part of a result."""

    resource: TextResource | BlobResource
    """The contents, with their URI."""
    annotations: Annotations | None = None
    """For whom it is and how important, as hints."""
    meta: dict[str, JSON] | None = field(default=None, name="_meta")
    """The `_meta` object of MCP, with keys that no standard has a place for."""


Content: TypeAlias = Text | Image | Audio | ResourceLink | EmbeddedResource
CONTENT_TYPES = (Text, Image, Audio, ResourceLink, EmbeddedResource)


class PromptMessage(Struct, frozen=True):
    """One message of a prompt."""

    role: Role
    """Who speaks: "user" or "assistant"."""
    content: Content
    """What is said."""


class ErrorInfo(Struct, frozen=True):
    """What a program reads of a tool's error; the model reads the text."""

    code: str
    """In capitals, such as CARD_DECLINED; `errors.ToolErrorCode` has those that the server itself uses."""
    retryable: bool = False
    """Whether the same call may succeed later."""
    details: dict[str, JSON] = {}
    """Further JSON for programs."""
    by_server: bool = False
    """Whether the server itself reports it, by one of its codes; an author's function may use the same word."""


class ToolResult(Struct, frozen=True, gc=False):
    """The result of a tool call. A tool may return one to set every part of its result."""

    content: list[Content]
    """What the model reads, in parts."""
    structured: JSON | UnsetType = UNSET
    """The value for programs, which MCP calls `structuredContent`."""
    is_error: bool = False
    """Whether the call failed."""
    meta: dict[str, JSON] | None = None
    """The `_meta` object of MCP, with keys that no standard has a place for."""
    error: ErrorInfo | None = None
    """Set only if `is_error`."""


class RawResult(Struct, frozen=True, gc=False):
    """The result of a request that another server answered, of any method.

    Where no policy shapes it, it is passed on to the byte.
    """

    encoded: bytes
    """The result as that server encoded it: a JSON object."""
    fields: dict[str, JSON]
    """The same, decoded."""


class ServiceResult(Struct, frozen=True):
    """The value of a service's response, with what its caller is to know of it."""

    value: Any
    """What a function would return."""
    next_arguments: dict[str, JSON] | None = None
    """All arguments of the call that returns the next page; None if there is none."""
    notes: tuple[str, ...] = ()
    """Sentences below the value, each in parentheses."""


class Contents(Struct, frozen=True):
    """The result of `resources/read`."""

    items: list[TextResource | BlobResource]
    """The contents; a folder may have several."""
    meta: dict[str, JSON] | None = None
    """The `_meta` object of MCP, with keys that no standard has a place for."""
    ttl_ms: int = 0
    """For how many milliseconds clients may keep them (2026-07-28)."""


class PromptResult(Struct, frozen=True):
    """The result of `prompts/get`: the messages of a prompt with its arguments filled in."""

    messages: list[PromptMessage]
    """What the conversation begins with."""
    description: str | None = None
    """What the prompt is for."""
    meta: dict[str, JSON] | None = None
    """The `_meta` object of MCP, with keys that no standard has a place for."""


class Completion(Struct, frozen=True):
    """Suggested values for an argument; clients show at most 100."""

    values: list[str]
    """The suggestions, the best first."""
    total: int | None = None
    """How many there are, if more than these."""
    has_more: bool | None = None
    """Whether there are more."""


class Page(Struct, frozen=True, weakref=True):
    """One page of a list; the items have the fields of the newest protocol version."""

    kind: Kind
    items: tuple[dict[str, JSON], ...]
    next_cursor: str | None
    encoded: dict[str, bytes]
    """The encoded page by protocol version. The dialects fill it; it stays valid because pages do not change."""
    public: bool = True
    """Whether every caller gets this page, so that shared caches may store it."""


class Definitions(Struct, frozen=True):
    """The result of `tools/describe`: full definitions. `alone` is that of `Describe`."""

    tools: tuple[dict[str, JSON], ...]
    alone: bool


class Manifest(Struct, frozen=True):
    """The result of `tools/manifest`: one page of entries (SEP-2636)."""

    entries: list[dict[str, JSON]]
    next_cursor: str | None
    public: bool = True
    meta: dict[str, JSON] | None = None


class About(Struct, frozen=True):
    """The server's description of itself: the result of `initialize` and `server/discover`."""

    info: dict[str, JSON]
    capabilities: dict[str, JSON]
    instructions: str | None
    gives_promises: bool = False
    """Whether a tool may answer with a promise."""


class Done(Struct, frozen=True):
    """An empty result."""


class SubscriptionEnd(Struct, frozen=True):
    """The result of a `subscriptions/listen` that the server ends."""


class PromiseStatus(enum.StrEnum):
    """The states of a promise; `promises/record.py` has the table of those that follow each."""

    QUEUED = "queued"
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (PromiseStatus.COMPLETED, PromiseStatus.FAILED, PromiseStatus.CANCELLED)


class Promise(Struct, frozen=True):
    """A call that the server goes on with after its reply, as it is at this moment.

    As an outcome it takes the place of the call's own. As the value of an `Answer` it is what the client asked about.
    """

    token: str
    status: PromiseStatus
    created_at: float
    """This and the next two are in seconds since 1970."""
    updated_at: float
    expires_at: float
    retry_seconds: float
    """How soon the client should ask again."""
    progress: float | None = None
    total: float | None = None
    message: str | None = None
    requests: "dict[str, InputRequest]" = {}
    """The questions of the call that the client has yet to answer."""
    outcome: "Outcome | None" = None
    """The outcome of the call, once it has one."""


# Outcomes


class Answer(Struct, frozen=True, gc=False):
    """The outcome of a request that succeeded. A tool's error is an answer too, because the model reads it."""

    value: (
        ToolResult
        | Contents
        | PromptResult
        | Completion
        | RawResult
        | Page
        | Definitions
        | Manifest
        | About
        | Done
        | SubscriptionEnd
        | Promise
    )


# Final, so that `type(x) is Failure` suffices: a false `isinstance` takes four times as long for such classes.
@final
class Failure(Struct, frozen=True):
    """The outcome of a request that the server refused or failed to perform.

    The client reads `message`, which must not reveal the server's internals.
    """

    fault: Fault
    message: str
    data: JSON | UnsetType = UNSET
    retry_seconds: float = 0.0
    """After how many seconds the client may try again; 0 if the server does not say."""
    missing_scopes: frozenset[str] = frozenset()
    """The scopes that the request needs and its principal does not have."""
    granted_scopes: frozenset[str] = frozenset()
    """The scopes that its principal has; a client that asks for more must ask for these again."""
    code: int = 0
    """The JSON-RPC code of another server's error that is passed on; 0 for the code of the fault."""


class InputRequest(Struct, frozen=True):
    """A question to the client: `elicitation/create`, `sampling/createMessage` or `roots/list`."""

    method: str
    params: dict[str, JSON]


class InputRequired(Struct, frozen=True):
    """The outcome of a request that the client must send again, with answers to these questions."""

    requests: dict[str, InputRequest]
    state: str | None
    memo: JSON = None
    """What the sealed state has of the function itself, for a server that keeps it and not its client."""


class NeededResource(Struct, frozen=True, omit_defaults=True):
    """A resource that a call needs more of than it has."""

    kind: str
    """Such as tokens, time, credit, memory, file, context or quota."""
    required: float | None = None
    available: float | None = None
    unit: str | None = None


class ResourceRequired(Struct, frozen=True):
    """The outcome of a request that the client may send again once it can grant more of a resource."""

    message: str
    resources: list[NeededResource]
    state: str | None


Outcome: TypeAlias = Answer | Failure | InputRequired | ResourceRequired | Promise
