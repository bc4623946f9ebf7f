"""Lists of scopes (RFC 6749, 3.3), and which of them the client asks for (MCP, "Scope Selection Strategy")."""

import re
from collections.abc import Iterable

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
_MAX_SCOPES = 100
OFFLINE_ACCESS = "offline_access"
"""The scope by which some authorization servers are asked for a refresh token (OpenID Connect Core, 11)."""


def read_scopes(text: str) -> tuple[str, ...]:
    """Returns the scopes of a list that are separated by spaces, without those that are none."""
    return union_scopes(text.split(" "))


def union_scopes(*lists: Iterable[str]) -> tuple[str, ...]:
    """Returns all scopes, each once, in the order in which they first occur."""
    found = dict.fromkeys(scope for scopes in lists for scope in scopes if _SCOPE.fullmatch(scope))
    return tuple(found)[:_MAX_SCOPES]


def select_scopes(
    challenged: Iterable[str], supported: Iterable[str] | None, earlier: Iterable[str], own: Iterable[str]
) -> tuple[str, ...]:
    """Returns the scopes to ask for; none leaves the choice to the authorization server.

    Args:
        challenged: those that the server's challenge names.
        supported: those that the server's metadata names.
        earlier: those that the client asked for before, and would lose otherwise (MCP 2026-07-28, "Step-Up").
        own: those that the program wants beside them.
    """
    return union_scopes(earlier, tuple(challenged) or supported or (), own)


def add_offline_access(scopes: tuple[str, ...], issuer_scopes: Iterable[str]) -> tuple[str, ...]:
    """Adds `offline_access` where the authorization server knows it (MCP 2026-07-28, "Refresh Tokens").

    A request that leaves the scopes to the authorization server stays as it is: it would get no other scope.
    """
    return union_scopes(scopes, [OFFLINE_ACCESS]) if scopes and OFFLINE_ACCESS in issuer_scopes else scopes
