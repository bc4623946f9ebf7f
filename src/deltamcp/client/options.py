"""What can be said of a connection."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypedDict

from deltamcp.client.callbacks import OnElicitation, OnSampling
from deltamcp.client.links.http import BearerToken
from deltamcp.client.negotiation import Encoding, ProtocolChoice
from deltamcp.values import JSON, LogLevel

OnChange: TypeAlias = Callable[[str], None]
OnLog: TypeAlias = Callable[[str, JSON, str | None], None]


class ClientOptions(TypedDict, total=False):
    """All of them may be left out."""

    speak: ProtocolChoice
    """`auto` finds out which era a server is of; `modern`, `handshake` and `delta-mcp` speak only that."""
    encoding: Encoding
    """What to write messages in where the server agreed to it. It saves bytes on the wire, no tokens."""
    progressive: bool
    """False to be shown what a client is that knows nothing of Delta-MCP."""
    deltas: bool
    """True to ask for what changed since the same call was answered last. `value` is whole in any case."""
    validate: bool
    """False to send arguments as they are."""
    listen: bool
    """False not to hear of changes. Over HTTP, hearing of them takes a connection."""
    headers: Mapping[str, str]
    """For every HTTP request."""
    token: BearerToken
    """A bearer token, or a function, plain or async, that gives one; it is asked again after a 401."""
    timeout: float
    """Seconds any request may take; without it as long as it takes."""
    start_timeout: float
    """Seconds until a server must have been started and introduced; 30 without."""
    cache_seconds: float
    """How long lists are believed of servers that neither say so themselves nor tell of changes; 300 without."""
    on_elicitation: OnElicitation
    on_sampling: OnSampling
    roots: Sequence[str | dict[str, JSON]]
    """Folders the server may work in, as `file://` URIs."""
    on_change: OnChange
    """Told of `"tools"`, `"prompts"` or `"resources"` when that list changed, of a URI when it was subscribed to."""
    on_log: OnLog
    """Takes a level, what was logged, and by whom."""
    log_level: LogLevel
    """The mildest that is wanted; info without."""
    quiet: bool
    """True not to show what a server that we start writes to stderr; its end is then told with its last words."""
    info: dict[str, JSON]
    """Who this client is: `name` and `version`."""
