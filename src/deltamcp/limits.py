"""Every number that bounds something, each with its reason.

A `Limits` is given to `DeltaServer(limits=...)`; whatever is left out keeps the default below.
"""

import msgspec

from deltamcp.errors import ConfigurationError


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one server accepts, waits for, and keeps."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value > 0:
                raise ConfigurationError(f"Limits: {name} must be a number above 0, not {value!r}.")

    message_bytes: int = 4 * 1024 * 1024
    """Largest message read, an HTTP body or a stdio line; the official SDK's default, so nothing that worked stops."""

    depth: int = 128
    """Deepest nesting of arrays and objects; real schemas and arguments stay under 30."""

    id_chars: int = 256
    """Longest request id; ids are kept while a request runs and echoed in every answer."""

    header_bytes: int = 32 * 1024
    """Largest HTTP header section; common proxies stop at 8 to 32 kB."""

    header_seconds: float = 10.0
    """Time a client has to send its HTTP header section."""

    body_seconds: float = 30.0
    """Time a client has to send its HTTP body; 4 MiB at 1.1 Mbit/s."""

    handler_seconds: float = 300.0
    """Deadline of a tool, resource, prompt or completion that sets none of its own."""

    input_seconds: float = 600.0
    """How long a question to the user may stay open: an elicitation, or the state sealed for its retry."""

    drain_seconds: float = 10.0
    """Grace for calls in flight after SIGTERM; orchestrators commonly kill after 30."""

    threads: int = 64
    """Plain (not async) functions running at once; further ones wait their caller's turn."""

    in_flight: int = 10_000
    """Requests in progress on one stdio connection, some 8 kB each; beyond it reading stops until one ends."""

    calls: int = 10_000
    """Requests in progress in the whole server over HTTP; beyond it 503."""

    unsent_bytes: int = 1024 * 1024
    """Output that may wait on stdio for a client that does not read, before its requests are not read either."""

    sessions: int = 50_000
    """Handshake sessions held at once; the one idle the longest goes first."""

    session_idle_seconds: float = 1800.0
    """A handshake session unused for so long is forgotten."""

    replay_events: int = 256
    """Events of one stream kept for a client that reconnects."""

    replay_streams: int = 16
    """Finished streams of one session kept for a client that reconnects."""

    kept_seconds: float = 300.0
    """A result that was shown in part and nobody reads on in is forgotten after so long."""

    kept_seconds_in_all: float = 1800.0
    """And however often it is read, after so long."""

    ping_seconds: float = 15.0
    """Silence on an open stream before a comment line keeps proxies from closing it."""

    stall_seconds: float = 1.0
    """The event loop blocked for so long by one tool is reported by name."""
