"""State that the server gives to a client, encrypted, and gets back in a later request; an application's own, too."""

import base64
import binascii
import contextlib
import functools
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON, SESSION_CONTEXT_KEY, Caller
from deltamcp.wire import jsonrpc

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
_VERSION = b"1"
_MAX_BYTES = 16 * 1024
"""The value as JSON, which goes to the client and back with every request."""
_MAX_CHARS = 2 * _MAX_BYTES


class Seal:
    """Encrypts values with AES-256-GCM, so that clients can neither read nor change them.

    A sealed value is valid for one caller and request and for a limited time; it is not single-use. Replicas that share
    the keys open each other's values.
    """

    def __init__(self, keys: Sequence[bytes], seconds: float) -> None:
        """The first of the keys seals, all of them open. Without one, it makes a key, which ends with the process.

        Values expire after `seconds`.
        """
        self._keys = tuple(keys)
        self._seconds = seconds

    def close(self, value: JSON, bound_to: bytes) -> str:
        """Returns the sealed value; `bound_to` identifies the caller and the request."""
        plain = msgspec.json.encode([time.time() + self._seconds, value])
        return base64.urlsafe_b64encode(_VERSION + self.close_bytes(plain, bound_to)).decode()

    def open(self, sealed: str, bound_to: bytes) -> JSON | None:
        """Returns the value; None if `sealed` was altered, belongs to another caller or request, or has expired."""
        try:
            raw = base64.b64decode(sealed.encode(), altchars=b"-_", validate=True)
            # base64 decodes several texts to the same bytes, because it ignores spare bits.
            if base64.urlsafe_b64encode(raw).decode() != sealed:
                return None
        except (ValueError, binascii.Error):
            return None
        plain = self.open_bytes(raw[1:], bound_to)
        if plain is None:
            return None
        expires, value = msgspec.json.decode(plain)
        return value if raw[:1] == _VERSION and expires >= time.time() else None

    def close_bytes(self, plain: bytes, bound_to: bytes) -> bytes:
        """Returns sealed bytes, which do not expire."""
        nonce = os.urandom(12)
        return nonce + self._ciphers[0].encrypt(nonce, plain, bound_to)

    def open_bytes(self, sealed: bytes, bound_to: bytes) -> bytes | None:
        """Returns the bytes; None if `sealed` was altered, or belongs to another caller or request."""
        from cryptography.exceptions import InvalidTag

        for cipher in self._ciphers:
            with contextlib.suppress(InvalidTag, ValueError):  # the latter for a nonce that is too short
                return cipher.decrypt(sealed[:12], sealed[12:], bound_to)
        return None

    @functools.cached_property
    def _ciphers(self) -> "list[AESGCM]":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 25 ms to import, seldom needed

        return [AESGCM(key) for key in self._keys or (os.urandom(KEY_BYTES),)]


def check_keys(keys: bytes | Sequence[bytes] | None) -> tuple[bytes, ...]:
    """Returns the keys of a `state_key`, which is one key, several or None.

    Raises:
        ConfigurationError: a key is not 32 bytes; the text does not show it.
    """
    if keys is None:
        return ()
    found = (keys,) if isinstance(keys, bytes) else tuple(keys)
    if not found or not all(isinstance(key, bytes) and len(key) == KEY_BYTES for key in found):
        raise ConfigurationError(f"state_key must be {KEY_BYTES} bytes, or a list of such keys.")
    return found


class SessionContext:
    """The value of one request, and what the function replaces it with."""

    __slots__ = ("_binding", "_new", "_seal", "_sent")

    def __init__(self, seal: Seal, caller: Caller, sent: JSON) -> None:
        """`sent` is what the request has in its `_meta`."""
        self._seal = seal
        self._binding = f"{SESSION_CONTEXT_KEY} {caller.principal.key}".encode()
        self._sent = sent
        self._new: dict[str, JSON] | None = None

    @property
    def value(self) -> dict[str, JSON]:
        """The value; empty if the client sent none, one of another principal, or one that has expired."""
        if self._new is not None:
            return self._new
        sent = self._sent
        found = self._seal.open(sent, self._binding) if isinstance(sent, str) and len(sent) <= _MAX_CHARS else None
        return found if isinstance(found, dict) else {}

    def replace(self, value: dict[str, JSON]) -> None:
        """Sets the value that the client carries from now on.

        Raises:
            ValueError: the value is no JSON object, or too large to be carried.
        """
        encoded = jsonrpc.encode_finite(value)
        if not isinstance(value, dict) or len(encoded) > _MAX_BYTES:
            raise ValueError(f"session_context takes a JSON object of at most {_MAX_BYTES} bytes.")
        self._new = msgspec.json.decode(encoded)

    @property
    def sealed(self) -> str | None:
        """The new value for the client; None if the function set none."""
        return None if self._new is None else self._seal.close(self._new, self._binding)
