"""Encryption of state that the server gives to a client and gets back in a later request."""

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
    """Encrypts values with AES-256-GCM, so that clients can neither read nor change them.

    A sealed value is valid for one caller and request and for a limited time; it is not single-use. Replicas that share
    the key open each other's values.
    """

    def __init__(self, key: bytes | None, seconds: float) -> None:
        """`key` has 32 bytes; None makes a new key, which ends with the process. Values expire after `seconds`."""
        self._key = key
        self._seconds = seconds

    def close(self, value: JSON, bound_to: bytes) -> str:
        """Returns the sealed value; `bound_to` identifies the caller and the request."""
        nonce = os.urandom(12)
        plain = msgspec.json.encode([time.time() + self._seconds, value])
        return base64.urlsafe_b64encode(_VERSION + nonce + self._cipher().encrypt(nonce, plain, bound_to)).decode()

    def open(self, sealed: str, bound_to: bytes) -> JSON | None:
        """Returns the value; None if `sealed` was altered, belongs to another caller or request, or has expired."""
        from cryptography.exceptions import InvalidTag

        try:
            raw = base64.b64decode(sealed.encode(), altchars=b"-_", validate=True)
            # base64 decodes several texts to the same bytes, because it ignores spare bits.
            if base64.urlsafe_b64encode(raw).decode() != sealed:
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
