"""The pages of a gateway at which its users log in at upstreams: one to start at, one to come back to.

A login belongs to the principal whose call needs it, and to the browser that started it. Where callers have tokens of
an authorization server, the user of that browser logs in there first and has to be that principal: else somebody could
be sent a link, and log in for somebody else.
"""

import hmac
import html
import secrets
from collections.abc import Iterable
from urllib.parse import parse_qs, urlencode, urlsplit

from msgspec import Struct

from deltamcp.auth.authenticator import Authenticator, Credentials
from deltamcp.auth.resource_server import ResourceServer
from deltamcp.client.oauth.token_storage import MemoryStorage
from deltamcp.context import Context
from deltamcp.errors import UnauthorizedError
from deltamcp.gateway.connections import CALLBACK_PATH, START_PATH
from deltamcp.transports.http import asgi
from deltamcp.transports.http.asgi import Receive, Scope, Send, read_cookie
from deltamcp.upstreams.user_login import BrowserLogin
from deltamcp.values import Principal

_COOKIE = "delta-mcp-login"
_MAX_LOGINS = 1000
"""The logins that are under way at once."""
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body style="font-family: system-ui; max-width: 34em; margin: 4em auto"><h1>{title}</h1><p>{text}</p>{more}</body>
</html>"""
_BUTTON = '<form method="post" action="{action}"><button>Continue</button></form>'
_HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"same-origin"),  # with no-referrer, browsers send the form with the Origin "null"
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
)


class _OpenLogin(Struct):
    """A login that is under way."""

    id: str
    principal: Principal
    upstream: str
    login: BrowserLogin
    browser: str | None = None
    """The cookie of the browser that started it; no other one can end it."""
    own_login: BrowserLogin | None = None
    """The login at the gateway's own authorization server, which tells who is in front of the browser."""


class LoginPages:
    """Where the browsers of users come back to. It implements `LoginPlace`."""

    def __init__(self, public_url: str = "", client_id: str | None = None, auth: Authenticator | None = None) -> None:
        """
        Args:
            public_url: The address at which browsers reach the gateway; by default that for which its callers' tokens
                are issued.
            client_id: The gateway's id at the authorization server of its callers; it registers itself by default.
            auth: Says who the gateway's callers are.
        """
        self._public_url = public_url
        self._client_id = client_id
        self._auth = auth
        self._logins: dict[str, _OpenLogin] = {}

    @property
    def redirect_uri(self) -> str:
        """
        Raises:
            UnauthorizedError: nobody has said where the gateway is.
        """
        return f"{self._origin}{CALLBACK_PATH}"

    @property
    def _origin(self) -> str:
        own = self._auth.resource if isinstance(self._auth, ResourceServer) else ""
        parts = urlsplit(self._public_url or own)
        if not parts.netloc:
            raise UnauthorizedError("Nobody can log in: the gateway's configuration has no public_url.")
        return f"{parts.scheme}://{parts.netloc}"

    async def open(self, login: BrowserLogin, upstream: str, context: Context) -> str:
        await login.page()
        self._forget_ended()
        found = next((one for one in self._logins.values() if one.login is login), None)
        if found is None:
            if len(self._logins) >= _MAX_LOGINS:
                raise UnauthorizedError("Too many logins are under way; try again later.")
            found = _OpenLogin(secrets.token_urlsafe(32), context.principal, upstream, login)
            self._logins[found.id] = found
        return f"{self._origin}{START_PATH}?{urlencode({'id': found.id})}"

    def _forget_ended(self) -> None:
        for one in [one for one in self._logins.values() if one.login.has_ended]:
            del self._logins[one.id]

    # Pages

    async def serve(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one of `LOGIN_PATHS`."""
        await (self._serve_start if path == START_PATH else self._serve_callback)(scope, receive, send)

    async def _serve_start(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._logins.get(_query(scope).get("id", ""))
        if found is None or found.login.has_ended:
            await _show(send, 404, "Not here", "This address is only for a login that is under way.")
        elif scope["method"] == "GET":
            await self._ask_to_start(found, scope, send)
        elif scope["method"] == "POST":
            await self._start(found, scope, send)
        else:
            await asgi.respond(send, 405, b"", ((b"allow", b"GET, POST"),))

    async def _ask_to_start(self, found: _OpenLogin, scope: Scope, send: Send) -> None:
        notice = (await found.login.page()).notice
        text = (
            f"Your account at {found.upstream} will be used for the calls that {found.principal.id} makes here. "
            f"Go on only if you are {found.principal.id}, and have just asked for this. {notice}"
        )
        more = _BUTTON.format(action=html.escape(f"{START_PATH}?{urlencode({'id': found.id})}"))
        headers = []
        if read_cookie(scope["headers"], _COOKIE) is None:
            secure = "; Secure" if self._origin.startswith("https://") else ""
            cookie = f"{_COOKIE}={secrets.token_urlsafe(32)}; Path={START_PATH}; HttpOnly; SameSite=Lax{secure}"
            headers.append((b"set-cookie", cookie.encode()))
        await _show(send, 200, f"Log in at {found.upstream}", text, more, headers)

    async def _start(self, found: _OpenLogin, scope: Scope, send: Send) -> None:
        browser = read_cookie(scope["headers"], _COOKIE)
        if browser is None:
            await _show(send, 400, "Cookies are off", "Allow cookies for this address, and open it again.")
            return
        if found.browser is not None and not _is_equal(found.browser, browser):
            await _show(send, 403, "Another browser", "This login was started in another browser.")
            return
        found.browser = browser
        try:
            if isinstance(self._auth, ResourceServer):
                if found.own_login is None or found.own_login.has_ended:
                    storage, place = MemoryStorage(), self.redirect_uri
                    found.own_login = BrowserLogin(self._auth.resource, storage, place, client_id=self._client_id)
                page = (await found.own_login.page()).url
            else:
                page = (await found.login.page()).url
        except UnauthorizedError as error:
            await _show(send, 502, "The login failed", str(error))
            return
        await _redirect(send, page)

    async def _serve_callback(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = _query(scope).get("state", "")
        found = next((one for one in self._logins.values() if _is_answered(one, state)), None)
        if found is None or scope["method"] != "GET":
            await _show(send, 404, "Not here", "This address is only for a login that is under way.")
            return
        browser = read_cookie(scope["headers"], _COOKIE)
        if browser is None or found.browser is None or not _is_equal(found.browser, browser):
            await _show(send, 403, "Another browser", "This login was started in another browser.")
            return
        address = f"{CALLBACK_PATH}?{scope['query_string'].decode('latin-1')}"
        try:
            if found.own_login is not None and found.own_login.is_answered_by(state):
                await self._check_user(found, found.own_login, address, scope)
                await _redirect(send, (await found.login.page()).url)
                return
            found.login.come_back(address)
            await found.login.wait()
        except UnauthorizedError as error:
            await _show(send, 403, "The login failed", str(error))
            return
        await _show(send, 200, f"Logged in at {found.upstream}", "You can close this page, and return to the program.")

    async def _check_user(self, found: _OpenLogin, own_login: BrowserLogin, address: str, scope: Scope) -> None:
        """
        Raises:
            UnauthorizedError: somebody else is in front of the browser.
        """
        own_login.come_back(address)
        await own_login.wait()
        assert self._auth is not None, "there is a login of its own only with it"
        token = await own_login.access.token()
        address = asgi.client_address(scope)
        principal = await self._auth.authenticate(Credentials(f"Bearer {token}", scope, address))
        if not isinstance(principal, Principal) or principal.key != found.principal.key:
            found.login.cancel()
            raise UnauthorizedError("You are not the user who was asked to log in.")


def _is_answered(one: _OpenLogin, state: str) -> bool:
    return one.login.is_answered_by(state) or (one.own_login is not None and one.own_login.is_answered_by(state))


def _is_equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _query(scope: Scope) -> dict[str, str]:
    """Returns the parameters of a request that occur once."""
    try:
        found = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=50)
    except ValueError:
        return {}
    return {name: values[0] for name, values in found.items() if len(values) == 1}


async def _show(
    send: Send, status: int, title: str, text: str, more: str = "", headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    page = _PAGE.format(title=html.escape(title), text=html.escape(text), more=more)
    await asgi.respond(send, status, page.encode(), (*_HEADERS, *headers))


async def _redirect(send: Send, url: str) -> None:
    """Sends the browser to a page that an authorization server named, which the client has checked."""
    await asgi.respond(send, 303, b"", (*_HEADERS, (b"location", url.encode())))
