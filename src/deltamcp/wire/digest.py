"""What content is known by: a hash of its canonical form."""

import hashlib

from deltamcp.values import JSON
from deltamcp.wire.canonical import canonical


def digest(value: JSON) -> str:
    """`sha256:` and 64 hex digits, the same for equal JSON values and no others."""
    return f"sha256:{hashlib.sha256(canonical(value)).hexdigest()}"
