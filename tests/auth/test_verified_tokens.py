"""The cache of verified tokens: bounded, by digest, never beyond a token's expiry."""

import time

from deltamcp.auth.resource_server import VerifiedTokens
from deltamcp.values import Principal


def verified(name: str = "ada", seconds: float = 600.0) -> Principal:
    return Principal(name, expires_at=time.time() + seconds)


def test_a_token_is_found_until_it_expires() -> None:
    cache = VerifiedTokens(60.0)
    cache.put("good", verified())
    cache.put("expired", verified(seconds=-0.1))
    found = cache.find("good")
    assert found is not None and found.id == "ada"
    assert cache.find("goo") is None
    assert cache.find("expired") is None
    assert len(cache) == 1


def test_a_token_is_looked_at_again_after_a_time() -> None:
    cache = VerifiedTokens(0.0)
    cache.put("good", verified(seconds=3600.0))
    assert cache.find("good") is None


def test_the_least_recently_used_token_is_forgotten_first() -> None:
    cache = VerifiedTokens(60.0, max_tokens=2)
    cache.put("a", verified("a"))
    cache.put("b", verified("b"))
    assert cache.find("a") is not None
    cache.put("c", verified("c"))
    assert [cache.find(token) is not None for token in "abc"] == [True, False, True]


def test_the_cache_has_no_token() -> None:
    cache = VerifiedTokens(60.0)
    cache.put("secret-token", verified())
    assert "secret-token" not in repr(vars(cache))
