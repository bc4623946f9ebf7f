"""An upstream at which every user has a login of its own, and so a connection, lists and subscriptions of its own.

Logins of all but the local user lie in the server's store, sealed.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from deltamcp.context import Context
from deltamcp.errors import UnreachableError, UpstreamError
from deltamcp.runtime.seal import Seal
from deltamcp.stores.store import SharedStore
from deltamcp.upstreams.client import Phase, UpstreamSettings, UpstreamState
from deltamcp.upstreams.listing import UpstreamListing
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import ANONYMOUS, JSON, LOCAL, Kind, Principal, RawResult
from deltamcp.wire import jsonrpc

if TYPE_CHECKING:
    from deltamcp.upstreams.user_login import UserLogin


_MAX_LOGINS = 10_000
"""The users whose logins are in memory; of further ones, that of the user who called least recently is read again."""
_MAX_CONNECTIONS = 256
"""The users who are connected at once, beside the local one."""
KEEP_SECONDS = 90 * 86_400.0
"""How long a login is kept that nobody uses."""


class MissingLoginError(UnreachableError):
    """A principal has no login at an upstream."""


class LoginUpstream(Upstream):
    """An upstream that performs each request with the login of its principal, and lists to each what that may see.

    The local user has the login of the user who started this process. Callers whom nobody authenticates have none,
    unless the operator shares that login with them.
    """

    has_logins = True

    def __init__(
        self,
        name: str,
        entry: dict[str, Any],
        settings: UpstreamSettings,
        make_login: "Callable[[Principal], UserLogin]",
        *,
        shares_login: bool = False,
        **options: Any,
    ) -> None:
        """
        Args:
            make_login: Returns the login of a principal.
            shares_login: Whether callers whom nobody authenticates have the login of the local user.
            options: As of `Upstream`, as are the other arguments.
        """
        self._make_login = make_login
        self._made_at = time.time()
        self._shares_login = shares_login
        self._logins: OrderedDict[str, UserLogin] = OrderedDict()
        self._used: dict[str, None] = {}
        """The owners whose logins were there when they were last looked for."""
        self._missing: dict[str, None] = {}
        """The owners who had none then."""
        super().__init__(
            name,
            entry,
            replace(settings, max_principals=max(settings.max_principals, _MAX_CONNECTIONS)),
            options_for=lambda principal: {"auth": self._login(principal).oauth},
            **options,
        )

    def login_of(self, principal: Principal) -> Principal:
        return LOCAL if principal is ANONYMOUS and self._shares_login else principal

    def state_for(self, principal: Principal) -> UpstreamState:
        """Returns the state for the principal alone; for the local user, who runs this process, that for all."""
        if principal is LOCAL:
            return self.state
        connection = self._clients.find(principal)
        held = self._subscriptions.get(principal.owner)
        return replace(
            UpstreamState(name=self.name, phase=Phase.STOPPED, since=self._made_at)
            if connection is None
            else connection.state,
            open_calls=self._open_calls[principal.owner],
            subscriptions=0 if held is None else len(held.uris),
        )

    def lacks_login(self, principal: Principal) -> bool:
        owner = self.login_of(principal)
        login = self._logins.get(owner.owner)
        return owner is ANONYMOUS or owner.owner in self._missing or (login is not None and login.is_refused)

    async def log_in(self, context: Context) -> RawResult:
        """Has the user of a caller log in.

        Raises:
            InputPending, UpstreamError: as `UserLogin.ensure`.
        """
        await self._ensure(context)
        text = f"The user is logged in at {self.name}."
        result: dict[str, JSON] = {"content": [{"type": "text", "text": text}]}
        return RawResult(jsonrpc.encode(result), result)

    async def forward(
        self, method: str, params: Mapping[str, JSON], context: Context, *, repeatable: bool = False, **options: Any
    ) -> RawResult:
        """Has the upstream perform a request of a caller, with the caller's own login.

        Raises:
            InputPending: the caller's user has to log in first; or as of `Upstream.forward`.
            UpstreamError: the user has to log in, and cannot be asked; or as of `Upstream.forward`.
            RemoteError: as of `Upstream.forward`.
        """
        login = await self._ensure(context)
        try:
            return await super().forward(method, params, context, repeatable=repeatable, **options)
        except UpstreamError:
            if not login.is_refused:
                raise
        await self._ensure(context)  # the upstream refused the request, and so has not performed it
        return await super().forward(method, params, context, repeatable=repeatable, **options)

    async def _ensure(self, context: Context) -> "UserLogin":
        """Returns the login of a caller, who logs in if there is none; a new one may have other lists.

        Raises:
            InputPending, UpstreamError: as `UserLogin.ensure`, or the caller cannot have a login.
        """
        principal = self.login_of(context.principal)
        if principal is ANONYMOUS:
            raise UpstreamError(
                f"{self.name} is used with the login of its caller, and this gateway does not know who calls: have it "
                f"ask for tokens (--auth), or share the operator's login (shared_login = true for {self.name})."
            )
        login = self._login(principal)
        if context.principal is not ANONYMOUS:
            await login.ensure(context)
        elif await login.is_missing():
            raise UpstreamError(f"{self.name} wants the operator of this gateway to log in; only the operator can.")
        if principal.owner not in self._used:
            self._note_login(principal, True)
            for kind in Kind:
                self._tell(principal, kind)
        return login

    async def fetch_listing(self, principal: Principal = LOCAL) -> UpstreamListing:
        """Returns what the upstream lists now to a principal.

        Raises:
            UnreachableError: the principal has no login.
            ClientError, PeerError: as of `Upstream.fetch_listing`.
        """
        await self._check_login(principal)
        return await super().fetch_listing(principal)

    async def subscribe(self, uri: str, principal: Principal = LOCAL) -> None:
        await self._check_login(principal)
        await super().subscribe(uri, principal)

    async def _check_login(self, principal: Principal) -> None:
        is_there = principal is not ANONYMOUS and not await self._login(principal).is_missing()
        self._note_login(principal, is_there)
        if not is_there:
            raise MissingLoginError(
                f"{'Nobody has' if principal is LOCAL else 'The user has not'} logged in at {self.name}."
            )

    def _note_login(self, principal: Principal, is_there: bool) -> None:
        for owners, is_one in ((self._used, is_there), (self._missing, not is_there)):
            owners.pop(principal.owner, None)
            if is_one:
                owners[principal.owner] = None
                if len(owners) > _MAX_LOGINS:
                    del owners[next(iter(owners))]

    async def close(self) -> None:
        while self._logins:
            await self._logins.popitem()[1].close()
        await super().close()

    def _login(self, principal: Principal) -> "UserLogin":
        owner = self.login_of(principal)
        login = self._logins.get(owner.owner)
        if login is None:
            if len(self._logins) >= _MAX_LOGINS:
                self._logins.popitem(last=False)
            login = self._logins[owner.owner] = self._make_login(owner)
        self._logins.move_to_end(owner.owner)
        return login


class SealedLogins:
    """A `TokenStorage` of one principal in the store of a server: encrypted with its state key.

    Requests of no other principal reach it.
    """

    def __init__(self, store: SharedStore, seal: Seal, server: str, principal: Principal) -> None:
        """`server` is the name of the server that the store belongs to."""
        self._store = store
        self._seal = seal
        self._owner = f"{server} upstream logins {principal.key}"
        self._locks: dict[str, asyncio.Lock] = {}

    async def load(self, server: str) -> bytes | None:
        sealed = await self._store.get(self._owner, server)
        record = None if sealed is None else self._seal.open(sealed.decode(), self._binding(server))
        return record.encode() if isinstance(record, str) else None

    async def save(self, server: str, record: bytes) -> None:
        sealed = self._seal.close(record.decode(), self._binding(server)).encode()
        await self._store.put(self._owner, server, sealed, KEEP_SECONDS, KEEP_SECONDS, self._owner)

    async def delete(self, server: str) -> None:
        await self._store.delete(self._owner, server)

    def lock(self, server: str) -> AbstractAsyncContextManager[None]:
        return self._locks.setdefault(server, asyncio.Lock())

    def _binding(self, server: str) -> bytes:
        return f"{self._owner}\n{server}".encode(errors="surrogatepass")
