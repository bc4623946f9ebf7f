"""The document in which an authorization server tells where its keys are (RFC 8414, OpenID Connect Discovery)."""

from urllib.parse import urlsplit

from deltamcp.auth.json_document import DocumentError, fetch_document


def metadata_urls(issuer: str) -> list[str]:
    """Returns where an issuer's document may be, in the order of MCP 2026-07-28, "Authorization Server Discovery"."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    urls = [f"{origin}/.well-known/{name}{path}" for name in ("oauth-authorization-server", "openid-configuration")]
    return [*urls, f"{origin}{path}/.well-known/openid-configuration"] if path else urls


async def find_jwks_url(issuer: str) -> str:
    """Returns the address of the issuer's keys.

    Raises:
        DocumentError: the issuer has no document, or one that is not its own or names no keys.
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
        if isinstance(jwks_url, str):
            return jwks_url
        reasons.append(f"{url} has no jwks_uri")
    raise DocumentError("; ".join(reasons))
