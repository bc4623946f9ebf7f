"""Verification of JSON Web Tokens by the keys of the authorization server that issued them."""

import time
from collections.abc import Sequence

from deltamcp.auth.claims import ClaimRules
from deltamcp.auth.json_web_token import read_object, read_token
from deltamcp.auth.key_set import KeySet
from deltamcp.auth.public_key import ALGORITHMS
from deltamcp.auth.token_fault import TokenError, TokenFault
from deltamcp.errors import ConfigurationError
from deltamcp.values import Principal


class JwtVerifier:
    """Verifies signed tokens: the algorithm, the signature, then the claims."""

    def __init__(self, keys: KeySet, rules: ClaimRules, algorithms: Sequence[str] = ALGORITHMS) -> None:
        """
        Raises:
            ConfigurationError: an algorithm is not one by which tokens may be signed.
        """
        unknown = [name for name in algorithms if name not in ALGORITHMS]
        if unknown or not algorithms:
            raise ConfigurationError(
                f"algorithms must be among {', '.join(ALGORITHMS)}; {', '.join(map(repr, unknown)) or 'none'} is not."
            )
        self._keys = keys
        self._rules = rules
        self._algorithms = frozenset(algorithms)

    async def verify(self, token: str, address: str = "") -> Principal:
        """Returns whom a token is for.

        Raises:
            TokenError: the token is refused.
            IssuerUnavailableError: there are no keys to verify it with.
        """
        read = read_token(token)
        if read.algorithm not in self._algorithms:
            raise TokenError(TokenFault.ALGORITHM_NOT_ALLOWED)
        key = await self._keys.find(read.key_id, read.algorithm)
        if key is None:
            raise TokenError(TokenFault.UNKNOWN_KEY)
        if not key.verifies(read.signed, read.signature, read.algorithm):
            raise TokenError(TokenFault.INVALID_SIGNATURE)
        return self._rules.check(read_object(read.payload), time.time())

    async def close(self) -> None:
        await self._keys.close()
