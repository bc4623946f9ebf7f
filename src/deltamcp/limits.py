"""The limits of a server on sizes, times and counts, each default with its reason.

The rule that the defaults keep: whatever a peer sends within them, other callers wait at most 100 ms because of it, and
memory grows by at most 64 MB beyond the stored data that it refers to. `docs/threat-model.md` has the rule's terms, and
`make hostile` measures it. An author's own blocking code is excepted.

An author passes a `Limits` to `DeltaServer(limits=...)`; fields that the author leaves out keep their defaults.
"""

import msgspec

from deltamcp.errors import ConfigurationError


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one server accepts from its clients, how long it waits for them, and how much it stores for them."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value > 0:
                raise ConfigurationError(f"Limits: {name} must be a number above 0, not {value!r}.")
        if self.account_share > 1:
            raise ConfigurationError(f"Limits: account_share must be at most 1, not {self.account_share!r}.")

    message_bytes: int = 4 * 1024 * 1024
    """Largest message the server reads, an HTTP body, a gRPC message or a stdio line; the same as the official SDK's
    default, and gRPC's. Over gRPC also the largest that it sends."""

    values: int = 100_000
    """Values and names of fields in one message; to decode these takes up to 60 ms and 20 MB, where 4 MiB of `[]` would
    take a second and 200 MB."""

    depth: int = 128
    """Deepest nesting of arrays and objects; real schemas and arguments stay under 30."""

    work_steps: int = 4_000_000
    """Steps of one computation that a peer asks for, see `work.py`: an expression, a search, references, a patch. That
    is a few seconds in a thread."""

    id_chars: int = 256
    """Longest request id; the server holds an id while the request runs and repeats it in every answer."""

    header_bytes: int = 32 * 1024
    """Largest HTTP header section, or metadata of gRPC; common proxies stop at 8 to 32 kB."""

    header_seconds: float = 10.0
    """Time a client has to send its HTTP header section."""

    body_seconds: float = 30.0
    """Time a client has to send its HTTP body; enough for 4 MiB at 1.1 Mbit/s."""

    handler_seconds: float = 300.0
    """Deadline of a tool, resource, prompt or completion for which the author sets none."""

    input_seconds: float = 600.0
    """How long the server waits for a user's answer: to an elicitation, or in a retry with sealed request state. A
    consent can be used for so long after the question."""

    drain_seconds: float = 10.0
    """Time that calls in flight have to end after SIGTERM; orchestrators commonly kill a process after 30."""

    redelivery_seconds: float = 30.0
    """Time without a sign of life after which another worker takes over the promises of one; a worker that blocks its
    event loop for so long counts as dead."""

    threads: int = 64
    """Functions without `async` that run at once; further calls wait, and callers take turns. As many dependencies may
    be closed at once."""

    in_flight: int = 10_000
    """Requests in progress on one stdio connection, some 8 kB each; at the limit the server reads on once one ends."""

    account_share: float = 1 / 8
    """Part of the connections, calls, sessions and bytes below that one account may use over HTTP: a principal, else a
    client address. It takes at least eight greedy accounts to keep out another. Clients behind a proxy have accounts of
    their own if the proxy is one of the `trusted_proxies`."""

    connections: int = 8_000
    """HTTP connections open at once, some 50 kB each with a header section; the process's limit on descriptors may be
    lower. The server refuses further ones with 503."""

    calls: int = 10_000
    """Requests in progress in the whole server over HTTP; the server answers further ones with 503. Half as many
    over gRPC. Calls, also stopped ones, whose dependencies are open; further calls with dependencies wait."""

    body_bytes: int = 256 * 1024 * 1024
    """HTTP bodies that the server reads or has yet to decode, and besides, half as much for those of requests in
    progress, once decoded. Others wait up to `body_seconds` to be decoded; the server answers 503 to further ones."""

    response_bytes: int = 256 * 1024 * 1024
    """Large HTTP responses and events that clients have yet to read; the server answers 503 instead of further ones. As
    much again of parts that generators have yielded, until their results are whole; further ones fail."""

    send_seconds: float = 30.0
    """Time in which a client must read 64 kB of what is sent to it, or all; then the server closes the connection."""

    unsent_bytes: int = 1024 * 1024
    """Output that may wait for a client to read it: on stdio the server stops reading requests at the limit, over HTTP
    it ends a subscription's stream."""

    sessions: int = 50_000
    """Handshake sessions open at once, some 6 kB each; at the limit the server ends an idle one of the account that has
    the most."""

    session_idle_seconds: float = 1800.0
    """Time after which the server ends an unused handshake session."""

    replay_events: int = 256
    """Events of one stream that the server stores for a client that reconnects."""

    replay_streams: int = 16
    """Finished streams of one session that the server stores for a client that reconnects."""

    replay_bytes: int = 256 * 1024 * 1024
    """Events that the server stores for clients that reconnect, in all; one session stores at most 1 MiB of them."""

    state_bytes: int = 64 * 1024
    """State that functions keep of one conversation, as JSON; every call that reads it reads all of it."""

    state_seconds: float = 86_400.0
    """Time after which the server deletes the state of a conversation that no call uses: people come back the next
    day."""

    kept_seconds: float = 300.0
    """Time after which the server deletes a stored result that no caller reads."""

    kept_seconds_in_all: float = 1800.0
    """Time after which the server deletes a stored result even if callers read it."""

    stored_bytes: int = 256 * 1024 * 1024
    """Size of all stored results, with 4 kB for each beside its data; at the limit the server stores nothing new."""

    stored_bytes_per_account: int = 64 * 1024 * 1024
    """Size of the results that are stored for one principal or, where that is unknown, one address or connection; at
    the limit the server deletes what this account did not read for the longest time. A fourth of all, so that the
    results of no three accounts keep the others from storing anything. Consents and promises of a caller are further
    accounts, and so are, in a store that replicas share, its sessions and its event streams."""

    promise_seconds: float = 3600.0
    """Deadline of one run of a call behind a promise, if its author sets none."""

    promise_result_seconds: float = 900.0
    """How long the outcome of a call behind a promise can be redeemed after the call has ended, at least."""

    promise_total_seconds: float = 24 * 3600.0
    """How long a promise can be redeemed after it was made, at most: the runs, the time that users take to answer, and
    what a client asks for. The server says for as long again that an expired promise has expired, and then that it
    does not know it."""

    promise_result_bytes: int = 8 * 1024 * 1024
    """Largest outcome of a call behind a promise; a larger one is reported as RESULT_TOO_LARGE."""

    promises_per_account: int = 1000
    """Calls behind promises that one account may have queued or at work; the server refuses further ones. Outcomes are
    stored results, and count as these."""

    store_seconds: float = 1.0
    """Deadline of one operation of the store, and one second more for each 32 MB to store; callers wait no longer for a
    store that does not answer."""

    ping_seconds: float = 15.0
    """Silence on an open stream after which the server sends a comment line, or MCP-lite's heartbeat, so that proxies
    keep the stream open."""

    stall_seconds: float = 1.0
    """Time for which one tool may block the event loop before the server logs the tool's name."""
