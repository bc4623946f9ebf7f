"""The pages as an ASGI application: who may ask for one, which answer of a gateway it needs, and what it may change.

Every request passes the same steps: the host, the origin, the cookie; a change also the form token and the right to it.
A cookie is given for a code that was printed at a terminal, once: the other users of a machine reach its loopback
addresses, too, so that a port alone lets in anybody.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

import uvicorn
from msgspec import Struct

from deltamcp.dashboard.api import ASKS, AskedGateway
from deltamcp.dashboard.web import calls_page, home_page, model_pages, server_pages
from deltamcp.dashboard.web.layout import STATIC_TYPES, Look, read_static
from deltamcp.errors import DeltaError, UnreachableError, UsageError
from deltamcp.limits import Limits
from deltamcp.runtime.log import WARNING_FILTER
from deltamcp.runtime.quota import Quota
from deltamcp.transports.admission import TrustedProxies
from deltamcp.transports.http import asgi
from deltamcp.transports.http.asgi import Receive, Scope, Send
from deltamcp.transports.http.protocol import bounded_protocol
from deltamcp.transports.sockets import TlsFiles
from deltamcp.wire import frames

logger: logging.Logger = logging.getLogger("deltamcp.http")

_MAX_FORM_BYTES, _MAX_LOGIN_BYTES = 128 * 1024, 16 * 1024
"""Of forms; one of 128 kB takes some 50 ms to decode at worst, which is when all of it is percent signs."""
_MAX_QUERY_FIELDS = 20
_EVENT_SECONDS = 0.5
"""Between two events of one page, so that a busy gateway does not keep a browser busy."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # with no-referrer, browsers send forms with the Origin "null"
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_NOT_STORED = (b"cache-control", b"no-store")
_HTML = (b"content-type", b"text/html; charset=utf-8")
_CODE_BYTES, _COOKIE_BYTES = 18, 32
_IDLE_SECONDS = 12 * 3600.0
_MAX_SESSIONS = 32
_MAX_SEEN = 1_000
_MAX_CONNECTIONS = 200
_MAX_END_SECONDS = 2


# Who may see the pages


class PageSession(Struct):
    """One browser that is logged in."""

    csrf: str
    """What every form of its pages has, and no page of another origin knows."""
    used_at: float
    shows_content: bool = False
    """Whether its user wants to see arguments and results of calls."""
    seen: dict[str, None] = {}
    """The differences that its user has opened, by what stands for them; the last is the newest."""

    def note_seen(self, text: str) -> None:
        self.seen[text] = None
        if len(self.seen) > _MAX_SEEN:
            del self.seen[next(iter(self.seen))]


class Logins:
    """The code that lets in the next browser, and the browsers that are in."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` gets every new code, to show it to the user and to nobody else; a code is used once."""
        self._tell = tell
        self._code = ""
        self._sessions: dict[bytes, PageSession] = {}
        """By digests of cookies, so that none can be read from memory, or found by timing."""

    def make_code(self) -> None:
        """Makes a code in place of the last, and tells it."""
        self._code = secrets.token_urlsafe(_CODE_BYTES)
        self._tell(self._code)

    def is_code(self, code: str) -> bool:
        """Returns whether a code is the one that lets in the next browser."""
        return bool(self._code) and hmac.compare_digest(code.encode(errors="replace"), self._code.encode())

    def log_in(self, code: str) -> str | None:
        """Uses a code; returns the cookie for it, or None if it is not the last one."""
        if not self.is_code(code):
            return None
        self.make_code()
        cookie = secrets.token_urlsafe(_COOKIE_BYTES)
        self._sessions[_digest(cookie)] = PageSession(secrets.token_urlsafe(24), time.monotonic())
        if len(self._sessions) > _MAX_SESSIONS:
            del self._sessions[min(self._sessions, key=lambda key: self._sessions[key].used_at)]
        return cookie

    def find(self, cookie: str | None) -> PageSession | None:
        """Returns the session of a cookie."""
        key = b"" if cookie is None else _digest(cookie)
        session = self._sessions.get(key)
        if session is None:
            return None
        if time.monotonic() - session.used_at > _IDLE_SECONDS:
            del self._sessions[key]
            return None
        session.used_at = time.monotonic()
        return session


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode(errors="replace")).digest()


# The application


class Answered(NamedTuple):
    """What is sent in answer to a request."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = (_HTML, _NOT_STORED)


class BrowserRequest(NamedTuple):
    """A request of a browser that is logged in."""

    look: Look
    gateway: AskedGateway
    session: PageSession
    query: Mapping[str, str]
    form: Mapping[str, str] = MappingProxyType({})


class RefusalError(Exception):
    """A request is not served; the text is for the person in front of the browser."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class DashboardApp:
    """Serves the pages of some gateways."""

    def __init__(
        self,
        find_gateways: Callable[[], Awaitable[Sequence[AskedGateway]]],
        logins: Logins,
        names: Collection[str],
        *,
        may_write: bool = False,
        is_secure: bool = False,
        check_token: Callable[[str, Scope], Awaitable[bool]] | None = None,
    ) -> None:
        """
        Args:
            names: The values of `Host` by which the pages may be reached.
            may_write: Whether browsers that are logged in may change something.
            is_secure: Whether the pages are served by https.
            check_token: Says whether a token is one of the gateway's own callers; browsers need one beside the code.
        """
        self._find_gateways = find_gateways
        self._logins = logins
        self._names = frozenset(name.lower() for name in names)
        self._may_write = may_write
        self._is_secure = is_secure
        self._check_token = check_token
        self._cookie = "__Host-delta-mcp" if is_secure else "delta-mcp-dashboard"
        self._ending = asyncio.Event()

    def close(self) -> None:
        """Ends the streams of events."""
        self._ending.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        try:
            answered = await self._answer(scope, headers, receive, send)
        except RefusalError as refusal:
            answered = _page(home_page.message_page(refusal.status.phrase, str(refusal)), refusal.status)
        except UnreachableError:
            text = "This gateway has ended. The list of gateways has those that run."
            answered = _page(home_page.message_page("Ended", text), HTTPStatus.NOT_FOUND)
        except DeltaError as error:
            answered = _page(home_page.message_page("That cannot be done", str(error)), HTTPStatus.CONFLICT)
        except Exception:
            logger.exception("a page of the dashboard failed")
            text = "This is a defect of delta-mcp; its log has the traceback."
            answered = _page(home_page.message_page("The page failed", text), HTTPStatus.INTERNAL_SERVER_ERROR)
        if answered is not None:
            body = b"" if scope["method"] == "HEAD" else answered.body
            await asgi.respond(send, answered.status, body, (*_HEADERS, *answered.headers))

    async def _answer(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> Answered | None:
        self._check_origin(scope, headers)
        path: str = scope["path"]
        query = _fields(scope["query_string"])
        if path.startswith("/static/"):
            return _static(path.removeprefix("/static/"))
        is_post = scope["method"] == "POST"
        if path == "/login":
            return await self._log_in(
                scope, {**query, **(await _read_form(receive, _MAX_LOGIN_BYTES) if is_post else {})}
            )
        session = self._logins.find(asgi.read_cookie(scope["headers"], self._cookie))
        if session is None:
            wants_token = self._check_token is not None
            return _page(home_page.login_page(wants_token), HTTPStatus.UNAUTHORIZED)
        form = await _read_form(receive, _MAX_FORM_BYTES) if is_post else {}
        gateways = {gateway.id: gateway for gateway in await self._find_gateways()}
        if path == "/":
            return await self._list(list(gateways.values()))
        _, id_, *rest = path.split("/")
        if id_ not in gateways:
            raise RefusalError(HTTPStatus.NOT_FOUND, "There is no such page; the gateway may have ended.")
        others = await _names_of([one for one in gateways.values() if one.id != id_])
        about = await gateways[id_].ask("about")
        look = Look(id_, about, session.csrf, self._may_write, others)
        request = BrowserRequest(look, gateways[id_], session, query, form)
        name = "/".join(rest) or "home"
        if scope["method"] == "POST":
            return await self._change(name, request)
        if name == "events":
            await self._send_events(request, receive, send)
            return None
        show = _PAGES.get(name)
        if show is None:
            raise RefusalError(HTTPStatus.NOT_FOUND, "There is no such page.")
        return await show(request)

    # Who asks

    def _check_origin(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """
        Raises:
            RefusalError: the request comes by another name of this machine, or a page of another origin sends it.
        """
        names = [value for name, value in scope["headers"] if name == b"host"]
        host = names[0].decode("latin-1").lower() if len(names) == 1 else ""
        if host not in self._names:
            raise RefusalError(HTTPStatus.MISDIRECTED_REQUEST, "Open the address that was printed at the terminal.")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise RefusalError(HTTPStatus.METHOD_NOT_ALLOWED, "Pages are read, and their forms sent.")
        origin = headers.get(b"origin")
        own = f"{'https' if self._is_secure else 'http'}://{host}".encode()
        site = headers.get(b"sec-fetch-site", b"none")
        is_page = headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
        is_foreign = site not in (b"same-origin", b"none") and not (is_page and scope["method"] == "GET")
        # A browser says the origin of every POST; whoever says none is no page, and has no cookie to lend.
        if (
            is_foreign
            or (origin is not None and origin.lower() != own)
            or (scope["method"] == "POST" and origin is None)
        ):
            raise RefusalError(HTTPStatus.FORBIDDEN, "Another page has sent this; do it here.")

    async def _log_in(self, scope: Scope, fields: Mapping[str, str]) -> Answered:
        code, token = fields.get("code", ""), fields.get("token", "")
        if scope["method"] == "HEAD" or not code:
            return _page(home_page.login_page(self._check_token is not None))
        if self._check_token is not None and not (token and self._logins.is_code(code)):
            if scope["method"] == "GET":
                return _page(home_page.login_page(wants_token=True, code=code))
            return _wrong_login(wants_token=True)
        if self._check_token is not None and not await self._check_token(token, scope):
            return _wrong_login(wants_token=True)
        cookie = self._logins.log_in(code)
        if cookie is None:
            return _wrong_login(self._check_token is not None)
        secure = "; Secure" if self._is_secure else ""
        written = f"{self._cookie}={cookie}; Path=/; HttpOnly; SameSite=Strict{secure}"
        return _redirect("/", (b"set-cookie", written.encode()))

    # What is shown

    async def _list(self, gateways: Sequence[AskedGateway]) -> Answered:
        if len(gateways) == 1:
            return _redirect(f"/{gateways[0].id}/home")
        found = [(one.id, await one.ask("about")) for one in gateways]
        return _page(home_page.gateways_page(found))

    async def _change(self, name: str, request: BrowserRequest) -> Answered:
        """
        Raises:
            RefusalError: the form is none of ours, or its user may not do that.
        """
        change = _CHANGES.get(name)
        if change is None:
            raise RefusalError(HTTPStatus.NOT_FOUND, "There is nothing to change here.")
        if not hmac.compare_digest(request.form.get("csrf", "").encode(), request.session.csrf.encode()):
            raise RefusalError(HTTPStatus.FORBIDDEN, "This form is of an earlier login; load its page again.")
        if change.ask and ASKS[change.ask].is_change and not self._may_write:
            raise RefusalError(HTTPStatus.FORBIDDEN, "This dashboard is for looking; start it with --dashboard-write.")
        return await change.perform(request)

    async def _send_events(self, request: BrowserRequest, receive: Receive, send: Send) -> None:
        """Tells what changes until the browser goes: that calls came, and that states are others."""
        start = await request.gateway.ask("changes", {"seconds": 0})
        seq, state = start["seq"], start["state"]
        if "calls" in request.query:  # of the last call that the page has: others may have come since it was read
            seq = min(seq, _parse_count(request.query["calls"]))
        streaming = [(b"content-type", b"text/event-stream"), _NOT_STORED, *_HEADERS]
        await send({"type": "http.response.start", "status": 200, "headers": streaming})
        gone = asyncio.ensure_future(asgi.wait_for_disconnect(receive))
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            await asgi.send_event(send, frames.KEEP_ALIVE)
            while True:
                arguments = {"seq": seq, "state": state, "calls": False}
                changes = asyncio.ensure_future(request.gateway.ask("changes", arguments))
                await asyncio.wait({changes, gone, ending}, return_when=asyncio.FIRST_COMPLETED)
                if not changes.done():
                    changes.cancel()
                    break
                try:
                    found = changes.result()
                except DeltaError:  # the gateway has ended; the browser tries again, and is told so
                    break
                await asgi.send_event(send, _events(found, seq, state))
                seq, state = found["seq"], found["state"]
                await asyncio.wait({gone, ending}, timeout=_EVENT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if gone.done() or ending.done():
                    break
            if not gone.done():
                await asgi.end_events(send)
        finally:
            gone.cancel()
            ending.cancel()


def _events(found: Any, seq: int, state: str) -> bytes:
    """Returns the events of what has changed; the page then asks for it."""
    events = [frames.KEEP_ALIVE]
    if found["state"] != state:
        events.append(frames.encode_named_event("state", b"{}"))
    if found["seq"] > seq:
        events.append(frames.encode_named_event("calls", b"{}"))
    return b"".join(events)


async def _names_of(gateways: Sequence[AskedGateway]) -> list[tuple[str, str]]:
    found = []
    for gateway in gateways:
        try:
            about = await gateway.ask("about")
        except DeltaError:
            continue
        found.append((gateway.id, about["label"]))
    return found


# Pages


async def _show_home(request: BrowserRequest) -> Answered:
    return _page(home_page.home_page(request.look, await request.gateway.ask("home")))


async def _show_chart(request: BrowserRequest) -> Answered:
    days = (await request.gateway.ask("home"))["days"]
    chart = {name: [day[name] for day in days] for name in ("day", "before", "after", "own")}
    return Answered(200, json.dumps(chart).encode(), ((b"content-type", b"application/json"), _NOT_STORED))


async def _show_servers(request: BrowserRequest) -> Answered:
    name, done = request.query.get("name"), request.query.get("done", "")
    said = f"{done} is started anew." if done else ""
    if name:
        return _page(
            server_pages.server_page(request.look, await request.gateway.ask("server", {"server": name}), said)
        )
    return _page(server_pages.servers_page(request.look, await request.gateway.ask("servers"), said))


async def _show_model(request: BrowserRequest) -> Answered:
    query = request.query.get("query", "")[:1000]
    surface = await request.gateway.ask("surface")
    found = await request.gateway.ask("search", {"query": query}) if query.strip() else None
    return _page(model_pages.model_page(request.look, surface, query, found))


async def _show_tools(request: BrowserRequest) -> Answered:
    asked = {name: request.query.get(name, "")[:200] for name in ("text", "server")}
    after = _parse_count(request.query.get("after", ""))
    found = await request.gateway.ask("tools", {**asked, "after": after, "limit": model_pages.PAGE_TOOLS})
    return _page(model_pages.tools_page(request.look, found, {**asked, "after": str(after)}))


async def _show_tool(request: BrowserRequest) -> Answered:
    tool = await request.gateway.ask("tool", {"name": request.query.get("name", "")})
    return _page(model_pages.tool_page(request.look, tool))


async def _show_calls(request: BrowserRequest) -> Answered:
    asked = {name: request.query.get(name, "")[:200] for name in ("text", "outcome")}
    shows_content = request.session.shows_content
    before = _parse_count(request.query.get("before", ""))
    arguments = {**asked, "before": before, "limit": calls_page.PAGE_CALLS, "content": shows_content}
    found = await request.gateway.ask("calls", arguments)
    pending = await request.gateway.ask("pending")
    said = "It is told to stop." if request.query.get("done") else ""
    return _page(calls_page.calls_page(request.look, found, pending, asked, shows_content, said))


async def _show_review(request: BrowserRequest) -> Answered:
    words = {"approved": "Approved. The model sees it within seconds.", "rejected": "Rejected; it stays out."}
    said = words.get(request.query.get("done", ""), "")
    return _page(server_pages.review_page(request.look, await request.gateway.ask("reviews"), said))


async def _show_diff(request: BrowserRequest) -> Answered:
    place = {name: request.query.get(name, "") for name in ("server", "place")}
    shown = await request.gateway.ask("diff", place)
    if shown["seen"]:
        request.session.note_seen(shown["seen"])
    return _page(server_pages.diff_page(request.look, shown))


_PAGES: Mapping[str, Callable[[BrowserRequest], Awaitable[Answered]]] = MappingProxyType(
    {
        "home": _show_home,
        "chart.json": _show_chart,
        "servers": _show_servers,
        "model": _show_model,
        "model/tools": _show_tools,
        "model/tool": _show_tool,
        "calls": _show_calls,
        "review": _show_review,
        "review/diff": _show_diff,
    }
)


# Changes


async def _restart(request: BrowserRequest) -> Answered:
    server = request.form.get("server", "")
    await request.gateway.ask("restart", {"server": server})
    shown = {"name": server} if request.form.get("back") == "server" else {}
    return _redirect(request.look.url(f"servers?{urlencode({**shown, 'done': server})}"))


async def _cancel(request: BrowserRequest) -> Answered:
    await request.gateway.ask("cancel", {"id": request.form.get("id", "")})
    return _redirect(request.look.url("calls?done=cancelled"))


async def _switch_content(request: BrowserRequest) -> Answered:
    request.session.shows_content = bool(request.form.get("content"))
    return _redirect(request.look.url("calls"))


async def _decide(request: BrowserRequest, ask: str, done: str) -> Answered:
    """
    Raises:
        RefusalError: the user has not opened the difference.
    """
    seen = request.form.get("seen", "")
    if seen not in request.session.seen:
        raise RefusalError(HTTPStatus.CONFLICT, "Open what changed, and read it first.")
    place = {name: request.form.get(name, "") for name in ("server", "place")}
    await request.gateway.ask(ask, {**place, "seen": seen})
    return _redirect(request.look.url(f"review?done={done}"))


async def _approve(request: BrowserRequest) -> Answered:
    return await _decide(request, "approve", "approved")


async def _reject(request: BrowserRequest) -> Answered:
    return await _decide(request, "reject", "rejected")


async def _call(request: BrowserRequest) -> Answered:
    name, text = request.form.get("name", ""), request.form.get("arguments", "").replace("\r\n", "\n")
    tool = await request.gateway.ask("tool", {"name": name})
    tried, fault = None, ""
    try:
        arguments = json.loads(text or "{}")
        if not isinstance(arguments, dict):
            raise ValueError
    except (ValueError, RecursionError) as error:
        where = f", line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        fault = f"The arguments are no JSON object{where}."
    else:
        try:
            tried = await request.gateway.ask("call", {"name": name, "arguments": arguments})
        except UsageError as error:
            fault = str(error)
    return _page(model_pages.tool_page(request.look, tool, text, tried, fault))


class _Change(NamedTuple):
    perform: Callable[[BrowserRequest], Awaitable[Answered]]
    ask: str = ""
    """What is asked of the gateway; empty for what only this browser is shown."""


_CHANGES: Mapping[str, _Change] = MappingProxyType(
    {
        "servers/restart": _Change(_restart, "restart"),
        "calls/cancel": _Change(_cancel, "cancel"),
        "calls/content": _Change(_switch_content),
        "review/approve": _Change(_approve, "approve"),
        "review/reject": _Change(_reject, "reject"),
        "model/call": _Change(_call, "call"),
    }
)


# Requests and answers


def _page(body: str, status: int = 200) -> Answered:
    return Answered(status, body.encode("utf-8", "replace"))


def _wrong_login(wants_token: bool) -> Answered:
    fault = "That did not let you in. A code works once: the newest is the last one at the terminal."
    return _page(home_page.login_page(wants_token, fault), HTTPStatus.FORBIDDEN)


def _redirect(path: str, *headers: tuple[bytes, bytes]) -> Answered:
    location = (b"location", quote(path, safe="/?&=%+-_.~").encode())
    return Answered(303, b"", (location, _NOT_STORED, *headers))


def _static(name: str) -> Answered:
    kind = STATIC_TYPES.get(name)
    if kind is None:
        raise RefusalError(HTTPStatus.NOT_FOUND, "There is no such file.")
    return Answered(200, read_static(name), ((b"content-type", kind), (b"cache-control", b"no-cache")))


def _fields(encoded: bytes) -> dict[str, str]:
    """
    Raises:
        RefusalError: there are too many fields.
    """
    try:
        return dict(parse_qsl(encoded.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS))
    except ValueError:
        raise RefusalError(HTTPStatus.BAD_REQUEST, "The address has too many fields.") from None


async def _read_form(receive: Receive, most: int) -> dict[str, str]:
    """
    Raises:
        RefusalError: it is too large.
    """
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > most:
            raise RefusalError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"This form has at most {most // 1024} kB.")
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return _fields(bytes(body))


def _parse_count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0


# Served beside a gateway


class _PageServer(uvicorn.Server):
    """uvicorn's server, which leaves signals to the program that it is in."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def pages_served(
    app: DashboardApp, sockets: Sequence[socket.socket], tls: TlsFiles | None = None
) -> AsyncIterator[None]:
    """Serves pages at sockets that are bound already, inside the block."""
    logging.getLogger("uvicorn.error").addFilter(WARNING_FILTER)
    limits = Limits()
    config = uvicorn.Config(
        app,
        http=bounded_protocol(limits, Quota(_MAX_CONNECTIONS, limits.account_share), TrustedProxies(())),
        ws="none",
        lifespan="off",
        access_log=False,
        proxy_headers=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        ssl_certfile=None if tls is None else tls.cert,
        ssl_keyfile=None if tls is None else tls.key,
        timeout_graceful_shutdown=_MAX_END_SECONDS,
    )
    server = _PageServer(config)
    serving = asyncio.create_task(server.serve([*sockets]))
    try:
        yield
    finally:
        app.close()
        server.should_exit = True
        await asyncio.wait([serving])
