"""An upstream at which every user has a login of its own, and so a connection of its own."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from deltamcp.context import Context
from deltamcp.errors import UnreachableError, UpstreamError
from deltamcp.upstreams.upstream import Upstream
from deltamcp.upstreams.upstream_catalogue import UpstreamCatalogue
from deltamcp.upstreams.upstream_settings import UpstreamSettings
from deltamcp.values import ANONYMOUS, JSON, LOCAL, Kind, Principal, RawResult
from deltamcp.wire import jsonrpc

if TYPE_CHECKING:
    from deltamcp.upstreams.logins.user_login import UserLogin

_MAX_LOGINS = 10_000
"""The users whose logins are in memory; of further ones, that of the user who called least recently is read again."""


class LoginUpstream(Upstream):
    """An upstream that performs each request with the login of its principal.

    The local user, and callers whom nobody authenticates, have the logins of the user who started this process. What
    the upstream lists to one of its users is what all users are offered.
    """

    def __init__(
        self,
        name: str,
        entry: dict[str, Any],
        settings: UpstreamSettings,
        make_login: "Callable[[Principal], UserLogin]",
        **options: Any,
    ) -> None:
        """
        Args:
            make_login: Returns the login of a principal.
            options: As of `Upstream`, as are the other arguments.
        """
        self._make_login = make_login
        self._logins: OrderedDict[tuple[bool, str], UserLogin] = OrderedDict()
        self._lister: Principal = LOCAL
        self._can_list = True
        """Whether the lister has a login, as far as is known."""
        super().__init__(
            name, entry, settings, options_for=lambda principal: {"auth": self._login(principal).oauth}, **options
        )

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
        await login.ensure(context)  # the upstream refused the request, and so has not performed it
        return await super().forward(method, params, context, repeatable=repeatable, **options)

    async def _ensure(self, context: Context) -> "UserLogin":
        """Returns the login of a caller, by which the upstream is listed if nobody else's is there."""
        login = self._login(context.principal)
        await login.ensure(context)
        if not self._can_list:
            self._lister, self._can_list = context.principal, True
            for kind in Kind:
                self.on_change(kind)
        return login

    async def fetch_catalogue(self, principal: Principal | None = None) -> UpstreamCatalogue:
        """Returns what the upstream lists now to a principal, or to the user by whose login it is listed.

        Raises:
            UnreachableError: that user has no login.
            ClientError, PeerError: as of `Upstream.fetch_catalogue`.
        """
        principal = principal or self._lister
        self._can_list = not await self._login(principal).is_missing()
        if not self._can_list:
            raise UnreachableError(f"Nobody has logged in at {self.name}.")
        return await super().fetch_catalogue(principal)

    async def close(self) -> None:
        while self._logins:
            await self._logins.popitem()[1].close()
        await super().close()

    def _login(self, principal: Principal) -> "UserLogin":
        owner = LOCAL if principal is ANONYMOUS else principal
        key = owner is LOCAL, owner.key  # a user may have its name
        login = self._logins.get(key)
        if login is None:
            if len(self._logins) >= _MAX_LOGINS:
                self._logins.popitem(last=False)
            login = self._logins[key] = self._make_login(owner)
        self._logins.move_to_end(key)
        return login
