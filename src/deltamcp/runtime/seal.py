"""State handed to a client to bring back, closed so that only we can read or change it."""

import base64
import binascii
import os
import time
from typing import TYPE_CHECKING

import msgspec

from deltamcp.values import JSON

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_VERSION = b"1"


class Seal:
    """AES-256-GCM under one key. Replicas that share the key open each other's state.

    What is sealed is bound to its caller and request, and expires; it is not single-use.
    """

    def __init__(self, key: bytes | None, seconds: float) -> None:
        """`key` is 32 bytes; without one, a fresh key that ends with the process."""
        self._key = key
        self._seconds = seconds

    def close(self, value: JSON, bound_to: bytes) -> str:
        nonce = os.urandom(12)
        plain = msgspec.json.encode([time.time() + self._seconds, value])
        return base64.urlsafe_b64encode(_VERSION + nonce + self._cipher().encrypt(nonce, plain, bound_to)).decode()

    def open(self, sealed: str, bound_to: bytes) -> JSON | None:
        """What was closed; None where it was altered, is another's, or has expired."""
        from cryptography.exceptions import InvalidTag

        try:
            raw = base64.b64decode(sealed.encode(), altchars=b"-_", validate=True)
            if base64.urlsafe_b64encode(raw).decode() != sealed:  # spare bits must not make a second spelling
                return None
            plain = self._cipher().decrypt(raw[1:13], raw[13:], bound_to)
        except (InvalidTag, ValueError, binascii.Error):
            return None
        expires, value = msgspec.json.decode(plain)
        return value if raw[:1] == _VERSION and expires >= time.time() else None

    def _cipher(self) -> "AESGCM":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 25 ms to import, seldom needed

        if self._key is None:
            self._key = AESGCM.generate_key(bit_length=256)
        return AESGCM(self._key)
