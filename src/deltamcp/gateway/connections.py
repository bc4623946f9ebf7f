"""Makes the connections to the servers behind a gateway, which share what ends processes and parks calls."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from deltamcp.calls.engine import Engine
from deltamcp.client.links.process import ProcessGuard
from deltamcp.client.options import ClientOptions
from deltamcp.errors import ConfigurationError
from deltamcp.gateway.api_server import ApiServer, is_api
from deltamcp.gateway.config import GatewayConfig, UpstreamConfig, entry_fault
from deltamcp.limits import Limits
from deltamcp.runtime.files import user_folder
from deltamcp.runtime.seal import Seal
from deltamcp.runtime.threads import Computations
from deltamcp.upstreams.login_upstream import KEEP_SECONDS, LoginUpstream, SealedLogins
from deltamcp.upstreams.parked_calls import ParkedCalls
from deltamcp.upstreams.secrets import EntryValues, UpstreamSecrets
from deltamcp.upstreams.upstream import Upstream, UpstreamListener
from deltamcp.values import LOCAL, Principal

if TYPE_CHECKING:
    from deltamcp.auth.authenticator import Authenticator
    from deltamcp.gateway.login_pages import LoginPages
    from deltamcp.transports.http.asgi import Receive, Scope, Send
    from deltamcp.transports.http.pages import AsgiApp
    from deltamcp.upstreams.user_login import UserLogin


LOGIN_PATHS = START_PATH, CALLBACK_PATH = "/upstream-login", "/upstream-login/callback"
"""Where users begin a login at an upstream, and where their browsers come back to."""


def connection_basis(config: UpstreamConfig, gateway: GatewayConfig) -> Sequence[object]:
    """Returns what the connection to an upstream is made from: where it is the same, so is the connection."""
    return (
        *(config.entry, config.secrets, config.settings, config.speak),
        *(config.auth, config.resource, config.shared_login),
        *(gateway.roots, _redacts_results(config, gateway)),
    )


def _redacts_results(config: UpstreamConfig, gateway: GatewayConfig) -> bool:
    return gateway.redact_results if config.redact_results is None else config.redact_results


def cache_folder() -> Path:
    """Returns where gateways keep what is known of upstreams, unless another folder is named."""
    return user_folder("cache") / "catalogs"


def make_target(config: UpstreamConfig, folder: Path) -> dict[str, Any] | ApiServer:
    """Returns what a client connects to; `folder` keeps what is known of upstreams."""
    return ApiServer(config.name, config.entry, folder) if is_api(config.entry) else config.entry


class Connections:
    """The connections of one gateway."""

    def __init__(
        self,
        config: GatewayConfig,
        engine: Callable[[], Engine],
        folder: Path | None,
        client_options: Mapping[str, ClientOptions] = MappingProxyType({}),
    ) -> None:
        """
        Args:
            engine: Returns that of the gateway's server, once it has a transport.
            folder: Keeps what is known of upstreams; without one, only documents of APIs are kept, in the user's.
            client_options: By the name of an upstream, further options of its client.
        """
        self._client_options = client_options
        self.config: GatewayConfig = config
        """That of the gateway."""
        self._engine, self._folder = engine, folder
        self._guard = ProcessGuard()
        self._parked_calls = ParkedCalls(Limits().input_seconds)
        self._computations = Computations(Limits().work_steps)
        self._auth: Authenticator | None = None
        """Who the callers over HTTP are."""
        self._secrets: dict[EntryValues, UpstreamSecrets] = {}
        """Also those of connections that are gone, whose errors may still be told."""

    def configure(self, config: GatewayConfig) -> None:
        """Makes connections from now on as another configuration says."""
        self.config = config

    def make(self, config: UpstreamConfig, listener: UpstreamListener) -> Upstream:
        """Returns the connection to an upstream, which is started when it is needed.

        Raises:
            ConfigurationError: the entry is none of a server, or users cannot log in there.
        """
        secrets = self._secrets.get(config.secrets)
        if secrets is None:
            names = [one.name for one in self.config.upstreams]
            secrets = self._secrets[config.secrets] = UpstreamSecrets(config.secrets, names)
        options: dict[str, Any] = {
            "listener": listener,
            "guard": self._guard,
            "parked_calls": self._parked_calls,
            "local_sessions": lambda: self._engine().local_sessions,
            "roots": self.config.roots,
            "secrets": secrets,
            "redacts_results": _redacts_results(config, self.config),
            "computations": self._computations,
            "speak": config.speak,
            **self._client_options.get(config.name, {}),
        }
        if fault := entry_fault(config):
            raise ConfigurationError(f"{config.name}: {fault}.")
        url, resource = config.entry.get("url"), config.resource
        if config.auth is None or not isinstance(url, str):
            return Upstream(
                config.name, make_target(config, self._folder or cache_folder()), config.settings, **options
            )

        def make_login(principal: Principal) -> "UserLogin":
            from deltamcp.upstreams.user_login import UserLogin, local_login

            if principal is LOCAL:
                return local_login(config.name, url, secrets, resource)
            engine = self._engine()
            logins = SealedLogins(engine.store, self.seal, engine.info["name"], principal)
            return UserLogin(config.name, url, logins, self._login_pages, secrets, resource)

        options["shares_login"] = config.shared_login
        return LoginUpstream(config.name, config.entry, config.settings, make_login, **options)

    @functools.cached_property
    def _login_pages(self) -> "LoginPages":
        from deltamcp.gateway.login_pages import LoginPages  # with the client of OAuth, which most gateways do not need

        return LoginPages(self.config.public_url, self.config.login_client_id, self._auth)

    @property
    def pages(self) -> "Mapping[str, Callable[[Authenticator | None], AsgiApp]]":
        """The pages at which users log in, for `DeltaServer`: upstreams with logins may come while the gateway runs."""
        return {path: functools.partial(self._make_page, path) for path in LOGIN_PATHS}

    def _make_page(self, path: str, auth: "Authenticator | None") -> "AsgiApp":
        self._auth = auth

        async def serve(scope: "Scope", receive: "Receive", send: "Send") -> None:
            await self._login_pages.serve(path, scope, receive, send)

        return serve

    @functools.cached_property
    def seal(self) -> Seal:
        """What encrypts the logins of principals."""
        return self._engine().make_seal(KEEP_SECONDS)

    def redact(self, text: str) -> str:
        """Returns a text without what nobody is told of the entries of upstreams."""
        for secrets in [*self._secrets.values()]:
            text = secrets.redact(text)
        return text

    def close(self) -> None:
        """Cancels the calls that wait for answers."""
        self._parked_calls.close()

    def end_processes(self) -> None:
        """Ends what is left of processes, when all connections are closed."""
        self._guard.close()
