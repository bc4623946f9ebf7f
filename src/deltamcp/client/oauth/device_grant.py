"""The device authorization grant (RFC 8628): the user logs in on another machine, with a code that is shown here."""

import asyncio
import re
from collections.abc import Awaitable, Callable

from deltamcp.client.oauth.json_http import JsonHttp
from deltamcp.client.oauth.login_page import LoginPage
from deltamcp.client.oauth.login_record import ClientIdentity, IssuedTokens
from deltamcp.client.oauth.metadata import IssuerDocument
from deltamcp.client.oauth.registration import DEVICE_CODE
from deltamcp.client.oauth.token_request import (
    TokenRefusedError,
    authenticate_client,
    read_error_code,
    request_tokens,
)
from deltamcp.errors import UnauthorizedError

_USER_CODE = re.compile(r"[A-Za-z0-9-]{1,64}")
"""RFC 8628, 6.1; other characters could be taken for a part of the sentence that shows the code."""
_INTERVAL_SECONDS, _MIN_INTERVAL_SECONDS, _MAX_INTERVAL_SECONDS = 5.0, 1.0, 60.0
_SLOW_DOWN_SECONDS = 5.0


async def log_in_by_device(
    http: JsonHttp,
    issuer: IssuerDocument,
    client: ClientIdentity,
    resource: str,
    scopes: tuple[str, ...],
    show: Callable[[LoginPage], Awaitable[object]],
    max_seconds: float,
) -> IssuedTokens:
    """
    Raises:
        UnauthorizedError: the authorization server has no such grant, or the user refused or did not log in in time.
    """
    if issuer.device_authorization_endpoint is None:
        raise UnauthorizedError(
            f"The authorization server {issuer.issuer[:200]} offers no login on another device; use a browser."
        )
    own_fields, headers = authenticate_client(client, issuer.issuer)
    fields = {"resource": resource, **own_fields}
    if scopes:
        fields["scope"] = " ".join(scopes)
    reply = await http.post_form(issuer.device_authorization_endpoint, fields, headers)
    device_code, user_code = reply.value.get("device_code"), reply.value.get("user_code")
    page, full_page = reply.value.get("verification_uri"), reply.value.get("verification_uri_complete")
    if reply.status != 200 or not isinstance(device_code, str) or not isinstance(page, str):
        reason = read_error_code(reply.value) or f"HTTP {reply.status}"
        raise UnauthorizedError(f"The authorization server {issuer.issuer[:200]} refuses the login: {reason}.")
    if not isinstance(user_code, str) or not _USER_CODE.fullmatch(user_code):
        raise UnauthorizedError(f"The authorization server {issuer.issuer[:200]} sent no code for the user.")
    url = full_page if isinstance(full_page, str) else page
    await show(LoginPage(http.check_url(page), user_code, http.check_url(url)))
    grant = {"grant_type": DEVICE_CODE, "device_code": device_code, "resource": resource}
    interval = _read_seconds(reply.value.get("interval"), _INTERVAL_SECONDS)
    seconds = min(max_seconds, _read_seconds(reply.value.get("expires_in"), max_seconds))
    try:
        async with asyncio.timeout(seconds):
            while True:
                await asyncio.sleep(max(_MIN_INTERVAL_SECONDS, min(interval, _MAX_INTERVAL_SECONDS)))
                try:
                    return await request_tokens(http, issuer, client, grant, scopes)
                except TokenRefusedError as error:
                    if error.code == "slow_down":
                        interval += _SLOW_DOWN_SECONDS
                    elif error.code != "authorization_pending":
                        raise
    except TimeoutError:
        raise UnauthorizedError(f"Nobody logged in within {seconds:g} s; try again.") from None


def _read_seconds(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) and 0 < value < 86400 else default
