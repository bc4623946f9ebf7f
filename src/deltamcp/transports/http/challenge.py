"""The `WWW-Authenticate` headers of the original server of Delta-MCP, from those of MCP."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from deltamcp.auth.authenticator import Authenticator
from deltamcp.auth.token_fault import TokenFault
from deltamcp.values import Failure

_REALM = 'Bearer realm="delta-mcp"'
_METADATA = re.compile(r'resource_metadata="[^"]*"')
_ABSENT = (TokenFault.MISSING, TokenFault.WRONG_SCHEME)
"""To the original a request with another scheme has no token."""
_REASONS: Mapping[str, str] = MappingProxyType(
    {
        TokenFault.EXPIRED: "expired",
        TokenFault.MISSING_EXPIRY: "missing_expiry",
        TokenFault.WRONG_AUDIENCE: "invalid_audience",
        TokenFault.INACTIVE: "introspection_failed",
        TokenFault.MALFORMED: "invalid_signature",
        TokenFault.ALGORITHM_NOT_ALLOWED: "invalid_signature",
        TokenFault.UNKNOWN_KEY: "invalid_signature",
        TokenFault.INVALID_SIGNATURE: "invalid_signature",
    }
)
_OTHER_REASON = "Token validation failed"
"""The original's text for a refusal without a reason; it does not check what else a token may be refused for."""


def write_challenge(auth: Authenticator, failure: Failure) -> str:
    """Returns the header of a response that refuses a request for its token.

    Without documents about authorization, whatever the reason is, it is the realm alone.
    """
    # The authenticator's URL is where the document is; the original's is not if the resource has a path.
    metadata = _METADATA.search(auth.challenge(failure) or "")
    if metadata is None:
        return _REALM
    challenge = f"{_REALM}, {metadata[0]}"
    reason = failure.data.get("reason", "") if isinstance(failure.data, Mapping) else ""
    if reason in _ABSENT:
        return challenge
    return f'{challenge}, error="invalid_token", error_description="{_REASONS.get(reason, _OTHER_REASON)}"'
