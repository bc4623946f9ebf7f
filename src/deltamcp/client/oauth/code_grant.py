"""The authorization code grant with PKCE (OAuth 2.1, 4.1): the page to open, and what comes back from it."""

import base64
import hashlib
import hmac
import secrets
from urllib.parse import parse_qs, urlencode, urlsplit

from msgspec import Struct

from deltamcp.client.oauth.json_http import JsonHttp
from deltamcp.client.oauth.login_record import ClientIdentity
from deltamcp.client.oauth.metadata import IssuerDocument
from deltamcp.client.oauth.scopes import OFFLINE_ACCESS
from deltamcp.client.oauth.token_request import read_error_code
from deltamcp.errors import UnauthorizedError


class CodeRequest(Struct, frozen=True):
    """One request for a code, with what its answer is checked by."""

    url: str
    """The page that the user opens."""
    issuer: IssuerDocument
    redirect_uri: str
    state: str
    verifier: str

    def __repr__(self) -> str:
        return f"<CodeRequest to {self.issuer.issuer}>"


def make_code_request(
    http: JsonHttp,
    issuer: IssuerDocument,
    client: ClientIdentity,
    resource: str,
    scopes: tuple[str, ...],
    state: str,
) -> CodeRequest:
    """
    Raises:
        UnauthorizedError: the authorization server has no PKCE with S256, which MCP demands, or no page to open.
    """
    if "S256" not in (issuer.code_challenge_methods_supported or ()):
        raise UnauthorizedError(
            f"The authorization server {issuer.issuer[:200]} does not say that it has PKCE with S256; ask who runs it."
        )
    if issuer.authorization_endpoint is None:
        raise UnauthorizedError(f"The authorization server {issuer.issuer[:200]} names no page to log in at.")
    endpoint = http.check_url(issuer.authorization_endpoint).partition("#")[0]
    verifier = secrets.token_urlsafe(64)
    digest = hashlib.sha256(verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": client.redirect_uri,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        "state": state,
        "resource": resource,
    }
    if scopes:
        query["scope"] = " ".join(scopes)
    if OFFLINE_ACCESS in scopes:
        query["prompt"] = "consent"  # OpenID Connect Core, 11: without it, the scope is ignored
    # OAuth 2.1, 1.4.1: no parameter occurs twice; a page could be opened with another's address to come back to.
    if query.keys() & parse_qs(urlsplit(endpoint).query, keep_blank_values=True).keys():
        raise UnauthorizedError(
            f"The authorization server {issuer.issuer[:200]} names a page that answers for the client; ask who runs it."
        )
    url = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"
    return CodeRequest(url, issuer, client.redirect_uri, state, verifier)


def make_state() -> str:
    """Returns a text that only the page's answer can know."""
    return secrets.token_urlsafe(32)


def has_state(url: str, state: str) -> bool:
    """Whether an address that a browser asked for belongs to a request with this state."""
    return hmac.compare_digest((_read_query(url).get("state") or "").encode(), state.encode())


def read_code(request: CodeRequest, redirected: str) -> str:
    """Returns the code from the address that the browser was sent to.

    Raises:
        UnauthorizedError: this is the answer to another request or of another authorization server, or the user or the
            authorization server refused.
    """
    query = _read_query(redirected)
    if not has_state(redirected, request.state):
        raise UnauthorizedError("The page that came back belongs to another login; log in again.")
    _check_issuer(request.issuer, query.get("iss"))
    if "error" in query:
        code = read_error_code(query) or "it does not say why"
        if code == "access_denied":
            raise UnauthorizedError("The login was refused, by you or the authorization server.")
        raise UnauthorizedError(f"The authorization server {request.issuer.issuer[:200]} refuses the login: {code}.")
    code_ = query.get("code")
    if not code_:
        raise UnauthorizedError(f"The authorization server {request.issuer.issuer[:200]} sent no code back.")
    return code_


def _check_issuer(issuer: IssuerDocument, named: str | None) -> None:
    """Refuses the answer of another authorization server (RFC 9207; MCP 2026-07-28, "Response Validation")."""
    if named is None and not issuer.authorization_response_iss_parameter_supported:
        return
    if named != issuer.issuer:  # the very same text: no normalization
        raise UnauthorizedError(
            f"The page that came back is not from the authorization server {issuer.issuer[:200]}; do not log in there."
        )


def _read_query(url: str) -> dict[str, str]:
    """Returns the parameters of an address; one that occurs twice is empty, and so never right (OAuth 2.1, 1.4.1)."""
    try:
        query = parse_qs(urlsplit(url).query, keep_blank_values=True, max_num_fields=50, errors="replace")
    except ValueError:
        return {}
    return {name: values[0] if len(values) == 1 else "" for name, values in query.items()}
