"""The frozen values that travel between the layers; this file imports none of them.

In the order of a request: the wire layer reads a `Message`, a dialect makes `Terms` (what the sender understands) and
an `Ask` (what it wants) of it, the engine answers with an `Outcome`, and the same dialect writes that.

Values made for every call are `gc=False`: they hold JSON, which has no cycles, and untracked they are cheaper.
"""

import enum
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field

from deltamcp.errors import Fault

JSON: TypeAlias = Any
"""A JSON value as Python holds it: dict, list, str, int, float, bool, None."""

RequestId: TypeAlias = int | str
Role: TypeAlias = Literal["user", "assistant"]
LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


# Messages


class Request(Struct, frozen=True, gc=False):
    """A JSON-RPC request: it will be answered exactly once."""

    id: RequestId
    method: str
    params: dict[str, JSON]


class Notification(Struct, frozen=True):
    """A JSON-RPC notification: it is never answered."""

    method: str
    params: dict[str, JSON]


class Response(Struct, frozen=True):
    """The peer's answer to a request of ours."""

    id: RequestId
    result: JSON = None
    error: dict[str, JSON] | None = None


class Malformed(Struct, frozen=True):
    """Bytes that are none of the above, and why; `id` where one could be read."""

    fault: Fault
    reason: str
    id: RequestId | None = None


Message: TypeAlias = Request | Notification | Response | Malformed


# Who asks, and what they understand


class Principal(Struct, frozen=True):
    """On whose behalf a request is made."""

    id: str
    scopes: frozenset[str] = frozenset()
    claims: dict[str, JSON] = {}


ANONYMOUS = Principal("anonymous")
"""Anyone who reaches an open port."""
LOCAL = Principal("local")
"""Whoever started this process, or runs inside it: on a pipe and in memory there is nobody else."""


class Caller(Struct, frozen=True, gc=False):
    """Who makes a request, and what the server may keep for them. `Engine.identify` makes it."""

    principal: Principal
    conversation: str | None = None
    """The connection or session that lasts from one request to the next; None where each request stands alone."""
    shares_handles: bool = False
    """Many callers are one to the server, so that handles must be ones nobody can guess."""

    @property
    def is_anonymous(self) -> bool:
        """Whether the caller may be anybody."""
        return self.principal.id == ANONYMOUS.id

    @property
    def is_remembered(self) -> bool:
        """Whether the server knows this caller when it comes back."""
        return self.conversation is not None or not self.is_anonymous


class Era(enum.Enum):
    """How a client introduces itself: once by handshake, or with every request."""

    HANDSHAKE = "handshake"
    MODERN = "modern"


class Surface(enum.Enum):
    """What `tools/list` shows."""

    FULL = "full"
    """Every tool with its schema."""
    PROGRESSIVE = "progressive"
    """Names and summaries; `tools/describe` gives the rest. Only where a client asked for it."""
    META = "meta"
    """Four tools that find, describe and run all others."""


class ResultShape(enum.StrEnum):
    """Whose shape a tool's result has on the wire; `delivery/` has a class for each."""

    MCP = "mcp"
    DELTA_MCP = "delta-mcp"
    """JSON in one text, and pages that clients turn by the arguments `page` and `pageSize`."""


class Terms(Struct, frozen=True, gc=False):
    """Who sent a request, and what they understand."""

    era: Era
    version: str
    capabilities: dict[str, JSON]
    client: dict[str, JSON]
    meta: dict[str, JSON]
    """The request's `_meta`, untouched."""
    log_level: LogLevel | None = None
    """Send log messages at or above this; none at all without it."""
    caller: Caller = Caller(ANONYMOUS)
    surface: Surface | None = None
    """What the sender negotiated to be shown; None leaves it to the server."""
    result_shape: ResultShape = ResultShape.MCP


# What is asked for


class Inputs(Struct, frozen=True):
    """What a retried request brings along: the client's answers, and our own sealed state."""

    responses: dict[str, JSON] = {}
    state: str | None = None


NO_INPUTS = Inputs()


class CallTool(Struct, frozen=True, gc=False):
    name: str
    arguments: dict[str, JSON]
    inputs: Inputs = NO_INPUTS


class ReadResource(Struct, frozen=True):
    uri: str
    inputs: Inputs = NO_INPUTS


class GetPrompt(Struct, frozen=True):
    name: str
    arguments: dict[str, str]
    inputs: Inputs = NO_INPUTS


class Complete(Struct, frozen=True):
    kind: Literal["prompt", "template"]
    target: str
    """The prompt's name or the template's URI."""
    argument: str
    value: str
    context: dict[str, str]


class Kind(enum.Enum):
    """What can be listed; the value is the key of the list in its result."""

    TOOLS = "tools"
    RESOURCES = "resources"
    TEMPLATES = "resourceTemplates"
    PROMPTS = "prompts"


class ListItems(Struct, frozen=True):
    kind: Kind
    cursor: str | None = None
    whole: bool = False
    """All on one page: for a client that knows no cursors."""


class Describe(Struct, frozen=True):
    """Tools by name, whole."""

    names: tuple[str, ...]
    alone: bool
    """One was asked for, and its definition is the result itself."""


class ListManifest(Struct, frozen=True):
    """Every tool by digest and size (SEP-2636)."""

    cursor: str | None = None


class Discover(Struct, frozen=True):
    """Versions, capabilities, instructions: `server/discover`."""


class Ping(Struct, frozen=True):
    """Answered with nothing."""


class SetLevel(Struct, frozen=True):
    level: LogLevel


class Watch(Struct, frozen=True):
    """`resources/subscribe`, or its opposite."""

    uri: str
    on: bool


class Filter(Struct, frozen=True):
    """Which changes a subscriber wants to hear of."""

    kinds: frozenset[Kind] = frozenset()
    uris: frozenset[str] = frozenset()


class Listen(Struct, frozen=True):
    filter: Filter


EngineAsk: TypeAlias = (
    CallTool | ReadResource | GetPrompt | Complete | ListItems | Describe | ListManifest | Discover | Ping
)
"""What the engine performs."""
SessionAsk: TypeAlias = SetLevel | Watch
"""What changes a handshake session, and nothing else."""
Ask: TypeAlias = EngineAsk | SessionAsk | Listen


# Content: what authors return and clients show


class Annotations(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Hints on how content or a resource is meant."""

    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None


class Icon(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A picture for a server, tool, prompt or resource: an https or data URI."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Text(Struct, frozen=True, gc=False, tag_field="type", tag="text", omit_defaults=True):
    """Plain text."""

    text: str
    annotations: Annotations | None = None
    meta: dict[str, JSON] | None = field(default=None, name="_meta")


class Image(Struct, frozen=True, tag_field="type", tag="image", rename="camel", omit_defaults=True):
    """An image; `data` is the file's bytes."""

    data: bytes
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, JSON] | None = field(default=None, name="_meta")


class Audio(Struct, frozen=True, tag_field="type", tag="audio", rename="camel", omit_defaults=True):
    """A sound; `data` is the file's bytes."""

    data: bytes
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, JSON] | None = field(default=None, name="_meta")


class ResourceLink(Struct, frozen=True, tag_field="type", tag="resource_link", rename="camel", omit_defaults=True):
    """Where something can be read, instead of the thing itself."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: dict[str, JSON] | None = field(default=None, name="_meta")


class TextResource(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a resource holds, as text."""

    uri: str
    text: str
    mime_type: str | None = None
    meta: dict[str, JSON] | None = field(default=None, name="_meta")


class BlobResource(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a resource holds, as bytes."""

    uri: str
    blob: bytes
    mime_type: str | None = None
    meta: dict[str, JSON] | None = field(default=None, name="_meta")


class EmbeddedResource(Struct, frozen=True, tag_field="type", tag="resource", omit_defaults=True):
    """A resource carried inside a result."""

    resource: TextResource | BlobResource
    annotations: Annotations | None = None
    meta: dict[str, JSON] | None = field(default=None, name="_meta")


Content: TypeAlias = Text | Image | Audio | ResourceLink | EmbeddedResource
CONTENT_TYPES = (Text, Image, Audio, ResourceLink, EmbeddedResource)


class PromptMessage(Struct, frozen=True):
    """One turn of a prompt."""

    role: Role
    content: Content


class ToolResult(Struct, frozen=True, gc=False):
    """What a tool gives back when it wants to decide every part of it."""

    content: list[Content]
    structured: JSON | UnsetType = UNSET
    is_error: bool = False
    meta: dict[str, JSON] | None = None


class Contents(Struct, frozen=True):
    """What was read at a resource's address."""

    items: list[TextResource | BlobResource]
    meta: dict[str, JSON] | None = None
    ttl_ms: int = 0


class PromptResult(Struct, frozen=True):
    """A prompt, filled in."""

    messages: list[PromptMessage]
    description: str | None = None
    meta: dict[str, JSON] | None = None


class Completion(Struct, frozen=True):
    """Suggestions for an argument; clients show at most 100."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class Page(Struct, frozen=True, weakref=True):
    """One page of a list, its items already in the form of the newest revision."""

    kind: Kind
    items: tuple[dict[str, JSON], ...]
    next_cursor: str | None
    encoded: dict[str, bytes]
    """The page's bytes by protocol version, filled by the dialects: a page never changes."""
    public: bool = True
    """Whether every caller sees the same, so that caches between may keep it."""


class Definitions(Struct, frozen=True):
    """Tools, whole; `alone` as in `Describe`."""

    tools: tuple[dict[str, JSON], ...]
    alone: bool


class Manifest(Struct, frozen=True):
    """One page of SEP-2636's entries."""

    entries: list[dict[str, JSON]]
    next_cursor: str | None
    public: bool = True
    meta: dict[str, JSON] | None = None


class About(Struct, frozen=True):
    """A server's own description: the answer to `initialize` and `server/discover`."""

    info: dict[str, JSON]
    capabilities: dict[str, JSON]
    instructions: str | None


class Done(Struct, frozen=True):
    """Nothing to say but that it was done."""


class SubscriptionEnd(Struct, frozen=True):
    """The answer to a `subscriptions/listen` that the server ends."""


# What came of it


class Answer(Struct, frozen=True, gc=False):
    """The request succeeded, a tool's own failure included: the model reads that."""

    value: (
        ToolResult
        | Contents
        | PromptResult
        | Completion
        | Page
        | Definitions
        | Manifest
        | About
        | Done
        | SubscriptionEnd
    )


class Failure(Struct, frozen=True):
    """The request was refused or broke; `message` is for the peer and leaks nothing of ours."""

    fault: Fault
    message: str
    data: JSON | UnsetType = UNSET


class InputRequest(Struct, frozen=True):
    """A question to the client: `elicitation/create`, `sampling/createMessage` or `roots/list`."""

    method: str
    params: dict[str, JSON]


class InputRequired(Struct, frozen=True):
    """The request must be sent again with answers to these questions."""

    requests: dict[str, InputRequest]
    state: str | None


Outcome: TypeAlias = Answer | Failure | InputRequired
