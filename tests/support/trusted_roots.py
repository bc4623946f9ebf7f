"""What HTTP clients trust, read once: each would read the system's certificates again, for 20 ms of CPU."""

import functools
import os
import ssl

import httpcore2

_make = httpcore2.default_ssl_context


def shared_context(*, _trust_env: bool = True) -> ssl.SSLContext:
    """Takes the place of `httpcore2.default_ssl_context`."""
    named = [os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")] if _trust_env else [None]
    return _context(_trust_env, *named)


@functools.cache
def _context(trust_env: bool, *named: str | None) -> ssl.SSLContext:
    return _make(_trust_env=trust_env)
