"""The document in which an authorization server tells where its keys are (RFC 8414, OpenID Connect Discovery)."""

from urllib.parse import urlsplit

from deltamcp.auth.json_document import DocumentError, fetch_document
from deltamcp.auth.safe_url import is_loopback


def metadata_urls(issuer: str) -> list[str]:
    """Returns where an issuer's document may be, in the order of MCP 2026-07-28, "Authorization Server Discovery"."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = [f"{origin}/.well-known/{name}{path}" for name in ("oauth-authorization-server", "openid-configuration")]
    return [*urls, f"{origin}{path}/.well-known/openid-configuration"] if path else urls


async def find_jwks_url(issuer: str) -> str:
    """Returns the address of the issuer's keys.

    Raises:
        DocumentError: the issuer has no document, or one that is not its own or names no keys; or one that names keys
            on this machine, and the issuer is not on it.
    """
    reasons = []
    for url in metadata_urls(issuer):
        try:
            document = await fetch_document(url)
        except DocumentError as error:
            reasons.append(str(error))
            continue
        if document.get("issuer") != issuer:  # RFC 8414, 3.3
            reasons.append(f"{url} is the document of another issuer")
            continue
        jwks_url = document.get("jwks_uri")
        if not isinstance(jwks_url, str):
            reasons.append(f"{url} has no jwks_uri")
        elif _is_on_this_machine(jwks_url) and not _is_on_this_machine(issuer):
            reasons.append(f"{url} names keys on this machine, and is elsewhere")
        else:
            return jwks_url
    raise DocumentError("; ".join(reasons))


def _is_on_this_machine(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
