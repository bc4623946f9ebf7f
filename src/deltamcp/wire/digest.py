"""Digests that identify content by its canonical form."""

import hashlib


def sha256_digest(form: bytes) -> str:
    """Returns the digest of bytes from `encode_canonical`: `sha256:` and 64 hex digits."""
    return f"sha256:{hashlib.sha256(form).hexdigest()}"
