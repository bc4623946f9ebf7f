"""What an operator says of a gateway and of each server behind it."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from deltamcp.client.negotiation import ProtocolChoice
from deltamcp.results.policy import ResultPolicy
from deltamcp.upstreams.upstream_secrets import EntryValues, entry_values
from deltamcp.upstreams.upstream_settings import UpstreamSettings

Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]


class UpstreamConfig(Struct, frozen=True, kw_only=True):
    """One server behind the gateway."""

    name: str
    """The category of its operations, and the prefix of its tools in a flat list."""
    entry: dict[str, Any]
    """An entry of an `mcpServers` file, with its variables filled in."""
    filled: dict[str, str] = {}
    """The values of these variables, by their names."""
    speak: ProtocolChoice = "auto"
    """The protocol to talk to it: negotiated, or forced to that of one era."""
    timeout: Seconds | None = None
    """The seconds that a request may take; None for the client's own bound."""
    concurrency: Count | None = None
    """The requests that it performs at once; None for any number."""
    start: Literal["first-use", "ahead"] = "first-use"
    idle_seconds: Seconds | None = 600.0
    """After how many seconds without a request its process is stopped; None never."""
    allow: tuple[str, ...] = ("*",)
    """Globs of the names of tools, as the upstream has them, that are offered; of these `deny` takes some away."""
    deny: tuple[str, ...] = ()
    rename: dict[str, str] = {}
    """Names that tools have here, by the names that they have there."""
    read_only: bool = False
    """Whether only tools are offered that say they are read-only."""
    pinned: tuple[str, ...] = ()
    """Globs of the tools that stay listed beside the meta-tools."""
    confirm: Literal["never", "destructive", "always"] = "never"
    """Which calls need the user's consent, by elicitation: those of tools that say `destructiveHint: true`, or all."""
    on_changed: Literal["quarantine", "accept"] = "quarantine"
    """What happens to an item whose definition is no longer the one that was approved."""
    on_new: Literal["announce", "quarantine"] = "quarantine"
    """What happens to what was not there when the upstream was first seen."""
    on_imitation: Literal["tell", "quarantine"] = "tell"
    """What happens to a tool that could be taken for another server's."""
    varies: tuple[str, ...] = ()
    """JSON pointers, with `*` and `**`, of what it is known to vary in its lists: `"/tools/search/description"`."""
    results: ResultPolicy | Literal[False] | None = None
    """How its results are fitted to a budget, in front of the gateway's policy; False passes them on to the byte."""
    promise: Literal["never", "auto"] = "auto"
    """Whether a long call becomes a promise, where the extra `promises` is installed."""
    sync_seconds: Seconds = 5.0
    auth: Literal["oauth"] | None = None
    """Whether the server wants its users to log in: then each principal has a login and a connection of its own."""
    resource: str | None = None
    """With `auth`: an address above the server's that its tokens may be for; every server there can be used with
    them."""
    shared_login: bool = False
    """Whether callers over HTTP whom nobody authenticates have the login of the user who started the gateway."""
    process_for: Literal["all", "principal"] = "all"
    """Whether all callers share one process or connection, or each principal has its own."""
    redact_results: bool | None = None
    """Whether results must not show the values of its entry, as errors never do; None for what the gateway says."""
    not_secret: tuple[str, ...] = ()
    """Globs of the names of variables, headers, options and parameters whose values may be shown."""

    @property
    def secrets(self) -> EntryValues:
        """What of the entry nobody is told."""
        return entry_values(self.entry, self.filled, self.not_secret)

    @property
    def settings(self) -> UpstreamSettings:
        """How its connection is started, used and stopped."""
        return UpstreamSettings(
            timeout=self.timeout,
            concurrency=self.concurrency,
            start=self.start,
            idle_seconds=self.idle_seconds,
            process_for=self.process_for,
        )


class GatewayConfig(Struct, frozen=True, kw_only=True):
    """A gateway and the servers behind it."""

    upstreams: list[UpstreamConfig]
    name: str = "delta-mcp"
    disclosure: Literal["meta", "full", "auto"] = "meta"
    query: bool = True
    """Whether read-only operations run through the meta-tool `query`."""
    destructive: bool = False
    """Whether operations that say they are destructive run through a meta-tool of their own."""
    prefix: bool | None = None
    """Whether names of tools and prompts begin with that of their upstream; None if there is more than one."""
    results: ResultPolicy | None = None
    roots: tuple[str, ...] = ()
    """Folders, as `file://` URIs, that servers are told of that ask for roots while no client can be asked."""
    wait_seconds: float = 8.0
    """How long the gateway waits, when it starts, for servers that it has never seen; later it announces what they
    list."""
    max_age_seconds: float = 86_400.0
    """For how long the gateway takes from its cache what a server lists, if nothing starts that server meanwhile."""
    redact_results: bool = False
    """Whether results of servers that do not say otherwise are searched for the values of their entries."""
    savings: bool = False
    """Whether every result says in its `_meta` what it would have cost a model and does cost."""
    keep_results: bool = False
    """Whether results that the gateway stores over stdio outlive its process, for an hour, in the user's folder."""

    public_url: str = ""
    """The address at which browsers reach the gateway, for the logins of its users at servers behind it; by default
    that of the resource for which its callers' tokens are issued."""
    login_client_id: str | None = None
    """The gateway's client id at the authorization server of its own callers, where it cannot register itself."""

    @property
    def has_prefix(self) -> bool:
        return len(self.upstreams) > 1 if self.prefix is None else self.prefix
