"""What content is known by: a hash of its canonical form."""

import hashlib


def sha256_digest(form: bytes) -> str:
    """`sha256:` and 64 hex digits, of what `canonical` made of a value."""
    return f"sha256:{hashlib.sha256(form).hexdigest()}"
