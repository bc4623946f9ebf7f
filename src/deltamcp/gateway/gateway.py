"""`Gateway`: configuration in, a `DeltaServer` out that offers what the servers behind it offer.

The server of a client that is mounted (`server_of_client`) is the gateway of that client's server alone.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast
from weakref import WeakSet

import msgspec

from deltamcp.calls.observers import CallObserver
from deltamcp.calls.server_items import can_queue_promises
from deltamcp.catalog.disclosure import Disclosure
from deltamcp.client.options import ClientOptions
from deltamcp.client.target import Address, Endpoint, GrpcAddress, InProcessServer, Program
from deltamcp.delivery.stored_results import KeptResults
from deltamcp.errors import ConfigurationError
from deltamcp.gateway import connections
from deltamcp.gateway.api_server import is_api
from deltamcp.gateway.config import HELD_KEYS, GatewayConfig, UpstreamConfig, check_config
from deltamcp.gateway.connections import Connections, connection_basis
from deltamcp.gateway.gateway_catalog import GatewayCatalog
from deltamcp.gateway.gateway_upstream import GatewayUpstream, ListingCache, upstream_metrics, wait_for_first_lists
from deltamcp.gateway.item_names import name_address, name_command
from deltamcp.gateway.ledger import Ledger
from deltamcp.gateway.live_configuration import LiveConfiguration
from deltamcp.gateway.trust.approvals import Approvals
from deltamcp.gateway.trust.quarantine import Quarantine
from deltamcp.promises.runner import QUEUE_MODULES
from deltamcp.runtime.files import user_folder
from deltamcp.runtime.process import collection_paused
from deltamcp.runtime.secrets import secrets_left_out
from deltamcp.server import DeltaServer
from deltamcp.upstreams.upstream import Upstream
from deltamcp.version import VERSION

if TYPE_CHECKING:
    from deltamcp.client.client import DeltaClient

_LOST_ADVICE = "With keep_results = true in its gateway.toml, the gateway keeps results when it is started anew."
_PASSED_ON = frozenset({"auth", "encoding", "info", "max_bytes", "token"})
"""The options of a client that its connections have here, too."""
_TAKEN = frozenset({"headers", "speak", "timeout"})
"""Those that the configuration has a place for."""


class Gateway:
    """Fronts other MCP servers. `server` is served as any other server is."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        observers: Sequence[CallObserver] = (),
        cache_folder: Path | Literal[False] | None = None,
        client_options: Mapping[str, ClientOptions] = MappingProxyType({}),
        default_results: Literal[False] | None = False,
        approvals: Approvals | None = None,
        ledger: Ledger | None = None,
        live: LiveConfiguration | None = None,
    ) -> None:
        """
        Args:
            observers: As of `DeltaServer`.
            cache_folder: Where to keep what upstreams list; the user's folder by default; False to keep no lists.
            client_options: By the name of an upstream, options of its client that no file can say, such as a function
                that gives a token.
            default_results: How results pass where neither the configuration nor an upstream has a policy: as they are,
                or with None as the server says that this one's is mounted in.
            approvals: The definitions that may be offered; by default those that the user approved.
            ledger: Notes what calls and lists cost; the gateway closes it.
            live: Where the configuration is from, if the gateway shall follow what changes there.

        Raises:
            ConfigurationError: a value is not allowed, two upstreams have the same name, or there can be no connection
                to one.
        """
        check_config(config)
        self._default_results = default_results
        self._config = config = self._with_default_results(config)
        self._ledger, self._live = ledger, live
        self.server: DeltaServer = DeltaServer(
            config.name,
            VERSION,
            disclosure=Disclosure(config.disclosure, query=config.query, destructive=config.destructive),
            results=config.results,
            lifespan=self._run,
            observers=observers if ledger is None else (*observers, ledger),
            conversation=config.conversation,
            as_tools=config.as_tools,
        )
        self._cache_folder = None if cache_folder is False else cache_folder or connections.cache_folder()
        self._connections = Connections(config, lambda: self.server.engine, self._cache_folder, client_options)
        self.redact: Callable[[str], str] = self._connections.redact
        """Returns a text without what nobody is told of the upstreams' entries."""
        self.server.add_pages(self._connections.pages)
        self._cache = ListingCache(self._cache_folder)
        self._approvals = approvals or Approvals()
        self._quarantine = Quarantine(self._approvals)
        self.upstreams: dict[str, GatewayUpstream] = {}
        """The servers behind it, by name, in the order of the configuration."""
        self._catalog = GatewayCatalog(
            self.server, config, self.upstreams, self._approvals, self._quarantine, lambda: self._connections.seal, live
        )
        self.upstreams |= {one.name: self._make_upstream(one) for one in config.upstreams}
        self._retired: WeakSet[Upstream] = WeakSet()
        """The connections that another one replaced, as long as a call may be on its way to them."""
        self._applying = asyncio.Lock()
        self._beside: list[Callable[[], contextlib.AbstractAsyncContextManager[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ledger(self) -> Ledger | None:
        """What notes calls and lists, if anything does."""
        return self._ledger

    @property
    def live(self) -> LiveConfiguration | None:
        """Where the configuration is from, if the gateway follows what changes there."""
        return self._live

    @property
    def approvals(self) -> Approvals:
        """What was approved of the servers behind it."""
        return self._approvals

    @property
    def quarantine(self) -> Quarantine:
        """What is kept out of what those list."""
        return self._quarantine

    def open_beside(self, open_: Callable[[], contextlib.AbstractAsyncContextManager[None]]) -> None:
        """Has something open while the gateway runs, such as its dashboard; say so before it starts."""
        self._beside.append(open_)

    def _make_upstream(self, config: UpstreamConfig) -> GatewayUpstream:
        """
        Raises:
            ConfigurationError: there can be no connection to it.
        """
        return GatewayUpstream(config, self._connections.make, self._cache, self._quarantine, self._catalog)

    @property
    def config(self) -> GatewayConfig:
        """The configuration that holds now."""
        return self._config

    async def apply(self, config: GatewayConfig) -> None:
        """Follows another configuration, while the gateway runs.

        Servers that are new, or are reached in another way, are started, if nothing is known of them, and then take
        their places in one step. Calls that were begun go on at the server that they were begun at. What `HELD_KEYS`
        name stays as it was.

        Raises:
            ConfigurationError: the gateway cannot follow it; all is as before.
        """
        async with self._applying:
            before = self._config
            held = {name: getattr(before, name) for name in HELD_KEYS}
            config = self._with_default_results(msgspec.structs.replace(config, **held))
            if config == before:
                return
            self._connections.configure(config)
            added = list[GatewayUpstream]()
            try:
                upstreams = [(self._find_upstream(one, before, added), one) for one in config.upstreams]
                for upstream in added:
                    upstream.load(config.max_age_seconds)
                    upstream.start()
                await wait_for_first_lists(added, config.wait_seconds)
                gone = [one for one in self.upstreams.values() if all(one is not other for other, _ in upstreams)]
                await self._catalog.change(config, upstreams)
            except BaseException:
                self._connections.configure(before)
                await self._close(added)
                raise
            self._config = config
            self.server.engine.report_savings(config.savings)
            self.server.engine.learned_shapes.keep(self._shapes_path())
            for upstream in gone:
                await upstream.stop_listing()
                self._retired.add(upstream.connection)
                upstream.connection.retire()

    def _with_default_results(self, config: GatewayConfig) -> GatewayConfig:
        """Returns a configuration as the gateway uses it: without a policy of its own, results pass as they are, also
        through meta-tools, which have a budget.

        Raises:
            ConfigurationError: two upstreams have the same name.
        """
        names = [one.name for one in config.upstreams]
        if len({*names}) < len(names):
            raise ConfigurationError(f"Two servers have the same name; rename one of {', '.join(names)}.")
        if config.results is not None or self._default_results is None:
            return config
        upstreams = [
            one if one.results is not None else msgspec.structs.replace(one, results=False) for one in config.upstreams
        ]
        return msgspec.structs.replace(config, upstreams=upstreams)

    def _find_upstream(
        self, config: UpstreamConfig, before: GatewayConfig, added: list[GatewayUpstream]
    ) -> GatewayUpstream:
        """Returns the upstream of a configuration: the one that is there, if it is reached in the same way.

        Raises:
            ConfigurationError: there can be no connection to it.
        """
        known = self.upstreams.get(config.name)
        basis = connection_basis(config, self._connections.config)
        if known is not None and connection_basis(known.config, before) == basis:
            return known
        made = self._make_upstream(config)
        added.append(made)
        return made

    async def _close(self, upstreams: Collection[GatewayUpstream]) -> None:
        await asyncio.gather(*(upstream.stop_listing() for upstream in upstreams))
        await asyncio.gather(*(upstream.connection.close() for upstream in upstreams))

    @contextlib.asynccontextmanager
    async def _run(self, server: DeltaServer) -> AsyncIterator[None]:
        engine = server.engine
        if self._config.savings:
            engine.report_savings()
        engine.lifespan.load_first(self._first_modules())
        kept = self._kept_results()
        engine.stored_results.keep(kept, _LOST_ADVICE if kept is None else "")
        engine.learned_shapes.withhold(lambda name: self.redact(name) == name)
        engine.learned_shapes.keep(self._shapes_path())
        engine.add_metrics(lambda: upstream_metrics(self._catalog.connections()))
        engine.local_sessions.watch(
            lambda: self._tell_each(Upstream.tell_roots_changed),
            lambda level: self._tell_each(lambda upstream: upstream.lower_log_level(level)),
        )
        try:
            with collection_paused():
                for upstream in self.upstreams.values():
                    upstream.load(self._config.max_age_seconds)
                await self._catalog.open(self._cache_folder)
            with secrets_left_out(self.redact):
                async with (
                    self._catalog.running(),
                    contextlib.nullcontext() if kept is None else kept.swept(),
                    contextlib.AsyncExitStack() as beside,
                ):
                    for open_ in self._beside:
                        await beside.enter_async_context(open_())
                    for upstream in self.upstreams.values():
                        upstream.start()
                    await wait_for_first_lists(self.upstreams.values(), self._config.wait_seconds)
                    async with contextlib.nullcontext() if self._live is None else self._live.followed_by(self):
                        yield
        finally:
            self._connections.close()
            self._catalog.close()
            await self._close(self.upstreams.values())
            await asyncio.gather(*(connection.close() for connection in [*self._retired]))
            self._connections.end_processes()
            if kept is not None:
                await kept.close()
            if self._ledger is not None:
                await asyncio.to_thread(self._ledger.close)

    def _first_modules(self) -> set[str]:
        """Returns what first calls import: the client, and the queue if tools that come later may give promises."""
        names = {"deltamcp.client.client", "deltamcp.upstreams.task"}
        for config in self._config.upstreams:
            names.add(f"deltamcp.client.links.{_link_module(config)}")
            if is_api(config.entry):
                names |= {"deltamcp.sources.openapi.service", "httpx2"}
        if can_queue_promises() and any(config.promise != "never" for config in self._config.upstreams):
            names |= QUEUE_MODULES
        return names

    def _kept_results(self) -> KeptResults | None:
        """Returns where results outlive this process: for the same configuration in the same working folder."""
        if not self._config.keep_results:
            return None
        identity = msgspec.json.encode([self._config, str(Path.cwd())], order="sorted")
        return KeptResults(identity, self.server.engine.limits)

    def _shapes_path(self) -> Path | None:
        """Returns the file with what operations return: one for the same servers in the same working folder."""
        if not self._config.keep_shapes:
            return None
        identity = msgspec.json.encode([[*self.upstreams], str(Path.cwd())])
        return user_folder("cache") / "shapes" / f"{hashlib.sha256(identity).hexdigest()[:32]}.json"

    def _tell_each(self, tell: Callable[[Upstream], Coroutine[Any, Any, None]]) -> None:
        for upstream in self._catalog.connections():
            task = asyncio.get_running_loop().create_task(tell(upstream))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def _link_module(config: UpstreamConfig) -> str:
    return "memory" if is_api(config.entry) else "process" if "command" in config.entry else "http"


def server_of_client(client: "DeltaClient", prefix: str) -> DeltaServer:
    """Returns a server that offers what the server of a client offers, with names that begin with a prefix.

    The author vouches for that server: its definitions are not reviewed, and nothing is kept on disk. What it asks
    its user and reports goes to whoever calls.

    Raises:
        ConfigurationError: there is an option that only a program of its own can use, or it is in this process.
    """
    options = client.options
    if unused := sorted(options.keys() - _PASSED_ON - _TAKEN):
        raise ConfigurationError(
            f"mount(connect(...)) has no use for {', '.join(unused)}; leave {'it' if len(unused) == 1 else 'them'} out."
            " What the server asks and tells goes to the callers of the one that it is mounted in."
        )
    token = options.get("token")
    headers = {**({"Authorization": f"Bearer {token}"} if isinstance(token, str) else {}), **options.get("headers", {})}
    entry = _endpoint_entry(client.endpoint, headers)  # what nobody is told is taken from the entry
    name = prefix or _endpoint_name(client.endpoint)
    upstream = UpstreamConfig(
        name=name,
        entry=entry,
        speak=options.get("speak", "auto"),
        timeout=options.get("timeout"),
        on_changed="accept",
        on_new="announce",
        promise="never",
    )
    passed_on = {key: value for key, value in options.items() if key in _PASSED_ON}
    if isinstance(token, str):
        del passed_on["token"]
    gateway = Gateway(
        GatewayConfig(upstreams=[upstream], name=name, disclosure="full", prefix=bool(prefix)),
        cache_folder=False,
        client_options={name: cast("ClientOptions", passed_on)},
        default_results=None,
        approvals=Approvals(False),
    )
    return gateway.server


def _endpoint_entry(endpoint: Endpoint, headers: Mapping[str, str]) -> dict[str, Any]:
    """Returns the entry of an `mcpServers` file that means an endpoint.

    Raises:
        ConfigurationError: the server is in this process.
    """
    match endpoint:
        case Program(command=(command, *args), env=env, cwd=cwd):
            inherited = dict(os.environ) if env is None else env
            return {"command": command, "args": args, "env": inherited, **({} if cwd is None else {"cwd": cwd})}
        case Address():
            kind = {"type": "mcp-lite"} if endpoint.is_lite else {"type": "sse"} if endpoint.only_sse else {}
            return {"url": endpoint.url, "headers": {**endpoint.headers, **headers}, **kind}
        case GrpcAddress():
            return {"url": endpoint.url, "headers": {**endpoint.headers, **headers}}
        case InProcessServer() | _:
            raise ConfigurationError("That server is in this process: mount it itself, with mount(server).")


def _endpoint_name(endpoint: Endpoint) -> str:
    """Returns a name for a server that has none here."""
    match endpoint:
        case Program():
            return name_command([endpoint.file] if endpoint.file else endpoint.command)
        case Address() | GrpcAddress():
            return name_address(endpoint.url)
        case _:
            raise AssertionError("it has an entry")
