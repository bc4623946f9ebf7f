"""The options of `connect` and `DeltaClient`."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypedDict

from deltamcp.client.callbacks import OnElicitation, OnSampling, RequestSender
from deltamcp.client.links.link import BearerToken
from deltamcp.client.links.process import ProcessGuard
from deltamcp.client.negotiation import Encoding, ProtocolChoice
from deltamcp.client.oauth.oauth import OAuth
from deltamcp.values import JSON, LogLevel

OnChange: TypeAlias = Callable[[str], None]
OnLog: TypeAlias = Callable[[str, JSON, str | None], None]


COMMAND_LINE = "delta-mcp command line"
"""The `name` of the command line as a client: a person reads what it gets, and no model."""


class ClientOptions(TypedDict, total=False):
    """Options of a client; all are optional."""

    speak: ProtocolChoice
    """The protocol to speak: `auto` (the default) detects it; `modern`, `handshake`, `delta-mcp` and `mcp-lite`
    allow no other."""
    encoding: Encoding
    """The encoding of messages if the server agrees, `json` by default. It saves bytes on the wire, not tokens."""
    known_protocol: str
    """The protocol that the server spoke when it was last seen, as `ServerInfo.protocol` has it. With `auto` the
    client then asks a server of an earlier era nothing that it does not know, unless that has failed."""
    progressive: bool
    """False to not declare Delta-MCP's extension; the server then answers as it answers any other client."""
    deltas: bool
    """True to let the server send only what changed since the last answer to the same call. `value` stays complete."""
    validate: bool
    """False to send arguments without checking them against the tool's schema."""
    listen: bool
    """False to not receive notifications of changes. Over HTTP, receiving them takes a connection of its own."""
    headers: Mapping[str, str]
    """Headers of every HTTP request."""
    token: BearerToken
    """A bearer token, or a function, plain or async, that returns one; the client calls it again after HTTP 401."""
    auth: OAuth
    """How the client gets tokens by itself, if the server wants any; the user may have to log in."""
    timeout: float
    """Seconds that a request may take, whatever comes meanwhile. By default it ends after 300 seconds in which the
    server neither reports progress nor waits for an answer of the program, and after an hour in any case."""
    start_timeout: float
    """Seconds that starting the server and negotiating may take; 30 by default."""
    cache_seconds: float
    """Seconds that a list is valid if the server neither gives a TTL nor notifies of changes; 300 by default."""
    max_bytes: int
    """Size of the largest message of the server, and of a list or a result that comes in several messages; 16 MiB by
    default. A value in them, or the name of a field, counts at least 24 bytes."""
    on_elicitation: OnElicitation
    """Answers the server's `elicitation/create`."""
    on_sampling: OnSampling
    """Answers the server's `sampling/createMessage`."""
    roots: Sequence[str | dict[str, JSON]]
    """Folders that the server may work in, as `file://` URIs or MCP root objects."""
    on_change: OnChange
    """Called with `"tools"`, `"prompts"` or `"resources"` when that list changed, with a URI when a subscribed resource
    changed."""
    on_log: OnLog
    """Called with the level, the data and the logger's name of each log message."""
    log_level: LogLevel
    """The lowest level that the server should send; `info` by default."""
    quiet: bool
    """True to not show what a started server writes to stderr; if the server exits early, the error quotes it."""
    on_stderr: Callable[[str], None]
    """Called with each line that a started server writes to stderr, instead of showing it."""
    reconnect: bool
    """False to leave a lost connection lost: requests then fail at once until the program enters the client again."""
    on_end: Callable[[str], None]
    """Called with the reason when the connection has ended by itself and `reconnect` is False."""
    guard: ProcessGuard
    """Ends a started server if this process ends without doing so, for example by SIGKILL."""
    sender: RequestSender
    """Whose requests the client forwards (`GatewayClient.forward`): it answers what the server asks, and takes what it
    logs, outside of these requests. The client then declares that it can be asked all that MCP has."""
    info: dict[str, JSON]
    """The client's `name` and `version`; delta-mcp's by default."""
