"""Bearer tokens that an operator makes and hands out, for servers without an authorization server.

A file, or an environment variable, has a line for each token: a name, the token's digest, and its scopes.

    build-robot sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 read write
"""

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from deltamcp.auth.authenticator import Credentials
from deltamcp.auth.bearer import TokenError, TokenFault, is_scope, read_bearer, refusal, write_challenge
from deltamcp.errors import ConfigurationError
from deltamcp.values import Failure, Principal

logger: logging.Logger = logging.getLogger("deltamcp.auth")

VARIABLE = "DELTA_MCP_TOKENS"
_PREFIX = "dmcp_"
"""Scanners for secrets find tokens by it."""
_ISSUER = "static-tokens"
_LOOK_SECONDS = 1.0
"""How often the server looks whether the file has changed."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


class StaticToken(Struct, frozen=True):
    """One line: a token's digest, and whom it is for."""

    digest: bytes
    principal: Principal


def make_token(name: str, scopes: Iterable[str] = ()) -> tuple[str, str]:
    """Makes a token; returns it, and its line for the file.

    Raises:
        ConfigurationError: the name or a scope cannot be in a line.
    """
    token = _PREFIX + secrets.token_urlsafe(32)
    line = " ".join([name, f"sha256:{hashlib.sha256(token.encode()).hexdigest()}", *scopes])
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"A token's name has letters, digits and any of ._@+- only; {name!r} has others.")
    for scope in scopes:
        if not is_scope(scope):
            raise ConfigurationError(f"A scope has printable characters only, without a space; {scope!r} has others.")
    return token, line


def read_tokens(text: str, place: str) -> list[StaticToken]:
    """Reads lines, which may also be separated by semicolons; those that begin with # are comments.

    Raises:
        ConfigurationError: a line is wrong, or there are no tokens.
    """
    tokens = []
    for number, line in enumerate(re.split(r"[\n;]", text), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 2 or not _NAME.fullmatch(words[0]) or not _DIGEST.fullmatch(words[1]):
            raise ConfigurationError(
                f"{place}, line {number}: a line is a name, sha256: and the digest of a token, then its scopes; "
                "delta-mcp token NAME makes one."
            )
        principal = Principal(words[0], frozenset(words[2:]), {}, _ISSUER)
        tokens.append(StaticToken(bytes.fromhex(words[1].removeprefix("sha256:")), principal))
    if not tokens:
        raise ConfigurationError(f"{place} has no tokens; delta-mcp token NAME makes one.")
    return tokens


class StaticTokens:
    """Admits requests with one of the tokens: `server.asgi(auth=StaticTokens("tokens.txt"))`.

    The server reads the file again when it changes. If it cannot be read then, the tokens stay as they were.
    """

    documents: Mapping[str, bytes] = {}

    def __init__(self, path: str | os.PathLike[str] | None = None, *, variable: str = VARIABLE) -> None:
        """`path` is the file; without it the lines are in the environment variable.

        Raises:
            ConfigurationError: there are no tokens, a line is wrong, or everybody may write to the file.
        """
        self._path = None if path is None else Path(path)
        self._seen: tuple[int, ...] | None = None
        self._next_look = 0.0
        self._tokens: list[StaticToken] = []
        if self._path is None:
            self._tokens = read_tokens(os.environ.get(variable, ""), f"The environment variable {variable}")
        else:
            self._read_file(self._path)

    async def authenticate(self, credentials: Credentials) -> Principal | Failure:
        """Returns the principal of the request's token, or why the token is refused."""
        try:
            token = read_bearer(credentials.authorization)
        except TokenError as error:
            return refusal(error.fault)
        if self._path is not None and time.monotonic() >= self._next_look:
            self._look_for_change(self._path)
        digest = hashlib.sha256(token.encode()).digest()
        found: Principal | None = None
        for known in self._tokens:  # all of them, so that the time tells nothing
            if hmac.compare_digest(known.digest, digest):
                found = known.principal
        return found or refusal(TokenFault.UNKNOWN_TOKEN)

    def _look_for_change(self, path: Path) -> None:
        self._next_look = time.monotonic() + _LOOK_SECONDS
        try:
            if _version(path) != self._seen:
                self._read_file(path)
                logger.info("read %d tokens from %s", len(self._tokens), path)
        except (ConfigurationError, OSError) as error:
            logger.error("the tokens stay as they were: %s", error)

    def _read_file(self, path: Path) -> None:
        try:
            self._seen = _version(path)
            mode = path.stat().st_mode
            text = path.read_text("utf-8")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigurationError(f"The tokens cannot be read from {path}: {reason}.") from None
        if sys.platform != "win32" and mode & stat.S_IWOTH:
            raise ConfigurationError(f"Everybody may write to {path}, and so give out tokens; chmod 600 it.")
        if sys.platform != "win32" and mode & stat.S_IWGRP:
            logger.warning("its group may write to %s, and so give out tokens; chmod 600 it", path)
        self._tokens = read_tokens(text, str(path))

    def challenge(self, failure: Failure) -> str | None:
        """Returns the `WWW-Authenticate` header that says why, and which scopes to ask for."""
        return write_challenge(failure, failure.missing_scopes | failure.granted_scopes)

    async def close(self) -> None:
        """Does nothing: there are no connections."""


def _version(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode  # a refused file may get another mode only
