"""A cache of tokens that were verified a moment ago, so that most requests need not verify one again."""

import hashlib
import time
from collections import OrderedDict

from msgspec import Struct

from deltamcp.values import Principal


class _CachedToken(Struct, frozen=True, gc=False):
    principal: Principal
    ends_at: float


class VerifiedTokens:
    """The principals of tokens by the tokens' digests; the least recently used are forgotten first."""

    def __init__(self, max_seconds: float, max_tokens: int = 4096) -> None:
        """`max_seconds`: how long a token is used without another look at it, so that a revoked one ends soon."""
        self._max_seconds = max_seconds
        self._max_tokens = max_tokens
        self._entries: OrderedDict[bytes, _CachedToken] = OrderedDict()

    def find(self, token: str) -> Principal | None:
        """Returns the principal of a token that was verified and has not expired since."""
        digest = hashlib.sha256(token.encode()).digest()
        entry = self._entries.get(digest)
        if entry is None:
            return None
        if time.time() >= entry.ends_at:
            del self._entries[digest]
            return None
        self._entries.move_to_end(digest)
        return entry.principal

    def put(self, token: str, principal: Principal) -> None:
        """Remembers a token until it expires, at most for `max_seconds`."""
        ends_at = min(principal.expires_at, time.time() + self._max_seconds)
        self._entries[hashlib.sha256(token.encode()).digest()] = _CachedToken(principal, ends_at)
        if len(self._entries) > self._max_tokens:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)
