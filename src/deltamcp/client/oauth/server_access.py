"""The client's access to one MCP server: finds, gets, keeps and renews its tokens."""

import asyncio
import functools
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from deltamcp.client.links.http1 import origin
from deltamcp.client.links.link import UserNeededError
from deltamcp.client.oauth.grants import (
    TokenRefusedError,
    authenticate_client,
    find_token_endpoint,
    identify_client,
    listen_for_redirect,
    log_in_by_device,
    make_code_request,
    make_state,
    read_code,
    request_tokens,
)
from deltamcp.client.oauth.json_http import JsonHttp
from deltamcp.client.oauth.metadata import (
    BearerChallenge,
    IssuerDocument,
    ResourceDocument,
    add_offline_access,
    covers,
    find_issuer,
    find_resource,
    is_server,
    read_bearer_challenge,
    select_scopes,
)
from deltamcp.client.oauth.oauth import LoginPage, LoginRequiredError, OAuth, can_open_browser, find_warnings
from deltamcp.client.oauth.token_storage import (
    ClientIdentity,
    IssuedTokens,
    IssuerLogin,
    LoginRecord,
    decode_record,
    encode_record,
)
from deltamcp.errors import UnauthorizedError

_LOST_CLIENT = ("invalid_client", "unauthorized_client")
"""Errors of an authorization server that has forgotten the client (OAuth 2.1, 3.2.4)."""

_DISCOVERY_SECONDS = 45.0
"""How long all requests together may take that find out where to log in; each of them has 20 s."""


class _Authority(NamedTuple):
    """Who gives tokens for a server, and for what."""

    resource: ResourceDocument
    issuer: IssuerDocument


class Forgotten(NamedTuple):
    """What came of forgetting a login."""

    was_stored: bool
    problem: str
    """Why the authorization server could not end the tokens, which are forgotten here all the same; else empty."""


class ServerAccess:
    """The tokens of one MCP server. Requests that are refused at the same time wait for one new token."""

    def __init__(self, oauth: OAuth, url: str) -> None:
        """`url` is where the client reaches the server."""
        self._oauth = oauth
        own, named = server_key(url), server_key(oauth.resource or url)
        self._server = own if covers(named, own) else named
        self._allowed_resource = named if self._server != named else ""
        self._http = JsonHttp(self._server)
        self._record = LoginRecord()
        self._lock, self._login_lock = asyncio.Lock(), asyncio.Lock()
        self._renewals: set[asyncio.Task[str | None]] = set()
        self._step_ups: set[frozenset[str]] = set()
        """Sets of scopes that the user has been asked for because the server wanted more."""

    async def token(self) -> str | None:
        async with self._lock:
            await self._load()
            return self._usable_token(None)

    async def renew(self, refused: str | None, challenge: str) -> str | None:
        read = read_bearer_challenge(challenge)
        # A refresh token is good for one use: what it was given for is stored, even if nobody waits for it any more.
        renewal = asyncio.create_task(self._renew_stored(refused, read))
        self._renewals.add(renewal)
        renewal.add_done_callback(self._renewals.discard)
        token = await asyncio.shield(renewal)
        if token is not None or self._oauth.grant == "client_credentials" or self._is_hopeless(read):
            return token
        if not self._oauth.asks_user:
            raise LoginRequiredError(self._server, challenge)
        raise UserNeededError(
            f"The server at {self._server} wants you to log in.",
            challenge,
            functools.partial(self._ask_user, refused, read),
            is_step_up=read.is_step_up,
        )

    async def log_in(self, refused: str | None, challenge: str) -> None:
        """Has the user log in, unless there is another token than the one that the server refused with this challenge.

        Raises:
            UnauthorizedError: the user did not log in; the text says why.
        """
        await self._ask_user(refused, read_bearer_challenge(challenge))

    async def forget(self) -> Forgotten:
        """Deletes what is stored about the server, and ends its tokens if the authorization server can."""
        async with self._lock, self._oauth.storage.lock(self._server):
            await self._load()
            login = self._record.current
            await self._oauth.storage.delete(self._server)
            problem = ""
            if login is not None and login.tokens is not None:
                try:
                    await self._revoke(self._record.issuer, login, login.tokens)
                except UnauthorizedError as error:
                    problem = str(error)
            return Forgotten(bool(self._record.logins), problem)

    async def _revoke(self, issuer_url: str, login: IssuerLogin, tokens: IssuedTokens) -> None:
        """Ends tokens at the authorization server that gave them, whatever the server names now (RFC 7009)."""
        issuer = await find_issuer(self._http, issuer_url)
        if issuer.revocation_endpoint is not None:
            places = {origin(issuer_url), origin(login.token_endpoint or issuer_url)}
            if origin(self._http.check_url(issuer.revocation_endpoint)) not in places:
                raise UnauthorizedError("The authorization server would end the login at another host.")
            fields, headers = authenticate_client(login.client, issuer.issuer)
            token = tokens.refresh_token or tokens.access_token
            reply = await self._http.post_form(issuer.revocation_endpoint, {"token": token, **fields}, headers)
            if reply.status >= 300:  # RFC 7009, 2.2: 200, also for a token that is no more
                raise UnauthorizedError(f"The authorization server refused to end the login (HTTP {reply.status}).")

    # What is stored

    async def _load(self) -> None:
        self._record = decode_record(await self._oauth.storage.load(self._server))

    async def _save(self, record: LoginRecord) -> None:
        self._record = record
        await self._oauth.storage.save(self._server, encode_record(record))

    @property
    def _bound_issuer(self) -> str:
        """The authorization server of the tokens: the program's, else that of the last login."""
        return self._oauth.issuer or self._record.issuer

    @property
    def _bound_login(self) -> IssuerLogin | None:
        return self._record.logins.get(self._bound_issuer)

    def _usable_token(self, refused: str | None) -> str | None:
        """Returns the stored token; None if the server refused it, or it is another client's, or allows too little."""
        login = self._bound_login
        if login is None or login.tokens is None or login.tokens.access_token == refused:
            return None
        if self._oauth.client_id not in (None, login.client.client_id):
            return None
        return login.tokens.access_token if set(self._oauth.scopes) <= set(login.scopes) else None

    # Without the user

    async def _renew_stored(self, refused: str | None, challenge: BearerChallenge) -> str | None:
        """Returns the token that another program has got meanwhile, or a new one; None if the user is needed."""
        async with self._lock, self._oauth.storage.lock(self._server):
            await self._load()
            return self._usable_token(refused) or await self._renew_alone(refused, challenge)

    async def _renew_alone(self, refused: str | None, challenge: BearerChallenge) -> str | None:
        """Returns a new token that can be had without the user; None if there is none."""
        if self._oauth.grant == "client_credentials":
            return await self._get_own_token(challenge)
        login = self._bound_login
        if refused is None or challenge.is_step_up or login is None or login.tokens is None:
            return None
        if login.tokens.refresh_token is None:
            return None
        # The authorization server may have changed: its successor gets none of its tokens.
        authority = await self._find_authority(challenge)
        issuer = authority.issuer.issuer
        if issuer != self._bound_issuer or self._has_moved(login, authority.issuer):
            return None
        grant = {
            "grant_type": "refresh_token",
            "refresh_token": login.tokens.refresh_token,
            "resource": authority.resource.resource,
        }
        try:
            tokens = await request_tokens(
                self._http, authority.issuer, login.client, grant, login.tokens.granted_scopes
            )
        except TokenRefusedError as error:
            if error.code in _LOST_CLIENT:
                await self._save(self._record.without_client(issuer))
            elif error.code == "invalid_grant":
                await self._save(self._record.without_tokens(issuer))
            else:
                raise
            return None
        if tokens.refresh_token is None:
            tokens = replace(tokens, refresh_token=login.tokens.refresh_token)
        await self._save(self._record.with_login(issuer, replace(login, tokens=tokens)))
        return tokens.access_token

    async def _get_own_token(self, challenge: BearerChallenge) -> str | None:
        """Gets a token for the program itself (OAuth 2.1, 4.2)."""
        if self._is_hopeless(challenge):
            return None
        authority = await self._find_authority(challenge)
        scopes = self._select_scopes(authority, challenge)
        client = await self._identify(authority, None, "", scopes)
        grant = {"grant_type": "client_credentials", "resource": authority.resource.resource}
        if scopes:
            grant["scope"] = " ".join(scopes)
        tokens = await request_tokens(self._http, authority.issuer, client, grant, scopes)
        await self._save_login(authority, client, tokens, scopes, challenge)
        return tokens.access_token

    def _is_hopeless(self, challenge: BearerChallenge) -> bool:
        """Whether the server wants scopes that its token has already, or that were asked for in vain."""
        login = self._bound_login
        if not challenge.is_step_up or login is None or login.tokens is None:
            return False
        wanted = frozenset(challenge.scopes)
        return wanted in self._step_ups or (bool(wanted) and wanted <= set(login.tokens.granted_scopes))

    # With the user

    async def _ask_user(self, refused: str | None, challenge: BearerChallenge) -> None:
        """Has the user log in, unless a request that waited as well has done it.

        Raises:
            UnauthorizedError: the user did not log in; the text says why.
        """
        async with self._login_lock:
            await self._load()
            if self._usable_token(refused) is not None:
                return
            authority = await self._find_authority(challenge)
            find_token_endpoint(self._http, authority.issuer)  # without one, no page is shown
            scopes = add_offline_access(
                self._select_scopes(authority, challenge), authority.issuer.scopes_supported or ()
            )
            if self._is_for_device(authority.issuer):
                client, tokens = await self._log_in_by_device(authority, scopes)
            else:
                client, tokens = await self._log_in_by_browser(authority, scopes)
            async with self._lock, self._oauth.storage.lock(self._server):
                await self._load()
                await self._save_login(authority, client, tokens, scopes, challenge)

    async def _find_authority(self, challenge: BearerChallenge) -> _Authority:
        """
        Raises:
            UnauthorizedError: the server does not say which authorization server it trusts, or a wrong one, or not in
                time.
        """
        try:
            async with asyncio.timeout(_DISCOVERY_SECONDS):
                return await self._ask_for_authority(challenge)
        except TimeoutError:
            raise UnauthorizedError(
                f"The server at {self._server} and its authorization server did not say within "
                f"{_DISCOVERY_SECONDS:g} s where to log in; try later."
            ) from None

    async def _ask_for_authority(self, challenge: BearerChallenge) -> _Authority:
        allowed = self._allowed_resource or self._record.resource
        resource = await find_resource(self._http, self._http.check_url(self._server), challenge, allowed)
        issuers = [] if resource is None else resource.authorization_servers
        own = self._oauth.issuer
        if own is not None and issuers and own not in issuers:
            raise UnauthorizedError(
                f"The server at {self._server} does not trust the authorization server {own} of the client id; ask who "
                "runs it."
            )
        if resource is None or not issuers:
            resource = resource or ResourceDocument(allowed or self._server)
            return _Authority(resource, await self._find_unnamed_issuer())
        known = own if own is not None else self._record.issuer if self._record.issuer in issuers else issuers[0]
        return _Authority(resource, await find_issuer(self._http, known))

    async def _find_unnamed_issuer(self) -> IssuerDocument:
        """Returns the authorization server of a server that names none: the program's, or the server itself, as MCP
        2025-03-26 has it."""
        if self._oauth.issuer is not None:
            return await find_issuer(self._http, self._oauth.issuer)
        parts = urlsplit(self._server)
        base = f"{parts.scheme}://{parts.netloc}"
        try:
            return await find_issuer(self._http, base, f"{base}/")
        except UnauthorizedError:
            raise UnauthorizedError(
                f"The server at {self._server} does not say where to log in; give a token, or ask who runs it."
            ) from None

    def _select_scopes(self, authority: _Authority, challenge: BearerChallenge) -> tuple[str, ...]:
        login = self._record.logins.get(authority.issuer.issuer)
        earlier = () if login is None else login.scopes
        return select_scopes(challenge.scopes, authority.resource.scopes_supported, earlier, self._oauth.scopes)

    def _is_for_device(self, issuer: IssuerDocument) -> bool:
        if self._oauth.grant is not None or self._oauth.open_page is not None or self._oauth.redirect_uri:
            return self._oauth.grant == "device_code"
        return issuer.device_authorization_endpoint is not None and not can_open_browser()

    async def _log_in_by_device(
        self, authority: _Authority, scopes: tuple[str, ...]
    ) -> tuple[ClientIdentity, IssuedTokens]:
        client = await self._identify(authority, self._stored_client(authority), "", scopes)
        tokens = await log_in_by_device(
            self._http,
            authority.issuer,
            client,
            authority.resource.resource,
            scopes,
            functools.partial(self._show, authority.issuer, scopes),
            self._oauth.login_seconds,
        )
        return client, tokens

    async def _show(self, issuer: IssuerDocument, scopes: tuple[str, ...], page: LoginPage) -> str | None:
        """Shows the user a page, with what it asks for and what to be careful of."""
        earlier = self._record.issuer if self._oauth.issuer is None else ""
        warnings = find_warnings(page, issuer.issuer, earlier)
        return await self._oauth.show(replace(page, scopes=scopes, warnings=warnings))

    async def _log_in_by_browser(
        self, authority: _Authority, scopes: tuple[str, ...]
    ) -> tuple[ClientIdentity, IssuedTokens]:
        stored, demanded, state = self._stored_client(authority), self._oauth.redirect_uri, make_state()
        if not self._oauth.listens:
            client = await self._identify(authority, stored, demanded, scopes)
            request = make_code_request(
                self._http, authority.issuer, client, authority.resource.resource, scopes, state
            )
            redirected = await self._show(authority.issuer, scopes, LoginPage(request.url))
            if redirected is None:
                raise UnauthorizedError("open_page did not return the address that the browser was sent to.")
        else:
            preferred = stored.redirect_uri if stored is not None else ""
            async with listen_for_redirect(demanded, preferred, state) as listener:
                client = await self._identify(authority, stored, listener.redirect_uri, scopes)
                request = make_code_request(
                    self._http, authority.issuer, client, authority.resource.resource, scopes, state
                )
                page = LoginPage(request.url, redirect_uri=listener.redirect_uri)
                await self._show(authority.issuer, scopes, page)
                redirected = await listener.wait(self._oauth.login_seconds)
        grant = {
            "grant_type": "authorization_code",
            "code": read_code(request, redirected),
            "redirect_uri": request.redirect_uri,
            "code_verifier": request.verifier,
            "resource": authority.resource.resource,
        }
        try:
            return client, await request_tokens(self._http, authority.issuer, client, grant, scopes)
        except TokenRefusedError as error:
            if error.code in _LOST_CLIENT:
                async with self._lock, self._oauth.storage.lock(self._server):
                    await self._load()
                    await self._save(self._record.without_client(authority.issuer.issuer))
            raise

    def _stored_client(self, authority: _Authority) -> ClientIdentity | None:
        login = self._record.logins.get(authority.issuer.issuer)
        return None if login is None or self._has_moved(login, authority.issuer) else login.client

    def _has_moved(self, login: IssuerLogin, issuer: IssuerDocument) -> bool:
        """Whether the authorization server gives tokens at another origin than when the login was made."""
        endpoint = find_token_endpoint(self._http, issuer)
        return bool(login.token_endpoint) and origin(endpoint) != origin(login.token_endpoint)

    async def _identify(
        self, authority: _Authority, stored: ClientIdentity | None, redirect_uri: str, scopes: tuple[str, ...]
    ) -> ClientIdentity:
        oauth = self._oauth
        if oauth.client_id is not None and oauth.issuer is None:
            self._record.check_binding(oauth.client_id, authority.issuer.issuer)
        return await identify_client(self._http, oauth, authority.issuer, stored, redirect_uri, scopes)

    async def _save_login(
        self,
        authority: _Authority,
        client: ClientIdentity,
        tokens: IssuedTokens,
        scopes: tuple[str, ...],
        challenge: BearerChallenge,
    ) -> None:
        if challenge.is_step_up:
            self._step_ups.add(frozenset(challenge.scopes))
        login = IssuerLogin(client, tokens, scopes, authority.issuer.token_endpoint or "")
        resource = authority.resource.resource
        record = replace(self._record, resource="" if is_server(resource, self._server) else resource)
        await self._save(record.with_login(authority.issuer.issuer, login))


def server_key(url: str) -> str:
    """Returns a server's URL as logins are stored under it: without a password, a fragment or capital letters."""
    parts = urlsplit(url)
    netloc = parts.netloc.rpartition("@")[2].lower()
    return parts._replace(scheme=parts.scheme.lower(), netloc=netloc, fragment="").geturl()
