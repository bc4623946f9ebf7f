"""The state keys that an operator gives to a server: in a file, or in the environment. No error shows a key."""

import argparse
import base64
import binascii
import re
from collections.abc import Mapping
from pathlib import Path

from deltamcp.errors import ConfigurationError
from deltamcp.runtime.seal import KEY_BYTES

VARIABLE = "DELTA_MCP_STATE_KEYS"
_HOW = "a key is 32 random bytes, as 64 hex digits or in base64; `openssl rand -hex 32` makes one"


def add_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--state-key-file",
        type=Path,
        metavar="FILE",
        help=f"the keys that seal what clients carry, one a line, the first seals; or set {VARIABLE}",
    )


def read_keys(path: Path | None, environment: Mapping[str, str]) -> tuple[bytes, ...]:
    """Returns the keys of a file, or else of the environment; none if there is neither.

    Raises:
        ConfigurationError: the file cannot be read, or what is there are not keys.
    """
    if path is None:
        return parse_keys(environment[VARIABLE], VARIABLE) if environment.get(VARIABLE) else ()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigurationError(f"{path} cannot be read: {reason}; name another --state-key-file.") from None
    return parse_keys(re.sub(r"(?m)^\s*#.*$", "", text), str(path))


def parse_keys(text: str, source: str) -> tuple[bytes, ...]:
    """Reads keys that spaces, line ends or commas separate; `source` begins the texts of errors.

    Raises:
        ConfigurationError: one of them is not a key, or there is none; the text says which, and does not show it.
    """
    words = re.split(r"[\s,]+", text.strip(" \t\r\n,"))
    if words == [""]:
        raise ConfigurationError(f"{source} has no key; {_HOW}.")
    keys = [_decode(word) for word in words]
    if None in keys:
        raise ConfigurationError(f"Key {keys.index(None) + 1} of {source} cannot be used; {_HOW}.")
    return tuple(key for key in keys if key is not None)


def _decode(word: str) -> bytes | None:
    try:
        if len(word) == 2 * KEY_BYTES:
            key = bytes.fromhex(word)
        else:
            plain = word.rstrip("=").replace("-", "+").replace("_", "/")
            key = base64.b64decode(f"{plain}{'=' * (-len(plain) % 4)}", validate=True)
    except (ValueError, binascii.Error):
        return None
    return key if len(key) == KEY_BYTES else None
