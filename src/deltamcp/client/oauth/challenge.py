"""Reads the `WWW-Authenticate` header, in which a server says which token and scopes it wants (RFC 9110, 11.6)."""

import re
from collections.abc import Iterable

from msgspec import Struct

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


_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PARAMETER = re.compile(rf'({_WORD})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))[ \t]*(?=,|$)', re.DOTALL)
_SCHEME = re.compile(rf"({_WORD})(?:[ \t]+|(?=,)|$)")
_TOKEN68 = re.compile(r"[A-Za-z0-9\-._~+/]+=*[ \t]*(?=,|$)")
_SEPARATOR = re.compile(r"[ \t,]*")
_MAX_CHARS = 16 * 1024


class BearerChallenge(Struct, frozen=True):
    """What a server says about the token that it wants; all of it is optional."""

    resource_metadata: str | None = None
    """The URL of the server's metadata about its protection (RFC 9728, 5.1)."""
    scopes: tuple[str, ...] = ()
    error: str | None = None

    @property
    def is_step_up(self) -> bool:
        """Whether the server accepts the token, and wants one that allows more."""
        return self.error == "insufficient_scope"


def read_bearer_challenge(header: str) -> BearerChallenge:
    """Returns the challenge of the scheme Bearer; an empty one if the header has none that can be read."""
    bearers = [parameters for scheme, parameters in split_challenges(header) if scheme == "bearer"]
    # A server behind a gateway may send two: the one that names metadata is the one of MCP.
    parameters = next((each for each in bearers if "resource_metadata" in each), bearers[0] if bearers else {})
    return BearerChallenge(
        parameters.get("resource_metadata"), read_scopes(parameters.get("scope", "")), parameters.get("error")
    )


def split_challenges(header: str) -> list[tuple[str, dict[str, str]]]:
    """Returns the schemes of a header and their parameters, names in lower case; stops where it cannot be read."""
    header = header[:_MAX_CHARS]
    challenges: list[tuple[str, dict[str, str]]] = []
    at = _skip_separator(header, 0)
    while at < len(header):
        parameter = _PARAMETER.match(header, at) if challenges else None
        if parameter is not None:
            name, quoted, token = parameter.groups()
            value = token if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
            challenges[-1][1].setdefault(name.lower(), value)
            at = _skip_separator(header, parameter.end())
            continue
        scheme = _SCHEME.match(header, at)
        if scheme is None:
            break
        challenges.append((scheme[1].lower(), {}))
        at = scheme.end()
        if _PARAMETER.match(header, at) is None and (token68 := _TOKEN68.match(header, at)) is not None:
            at = token68.end()
        at = _skip_separator(header, at)
    return challenges


def _skip_separator(header: str, at: int) -> int:
    match = _SEPARATOR.match(header, at)
    return at if match is None else match.end()
