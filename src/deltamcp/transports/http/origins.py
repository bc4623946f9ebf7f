"""The `Host` and `Origin` headers that the server accepts."""

import logging
from collections.abc import Iterable

from deltamcp.errors import Fault
from deltamcp.transports.http.exchange import Exchange
from deltamcp.transports.warning_filter import WARNING_FILTER
from deltamcp.values import Failure

logger = logging.getLogger("deltamcp.http")
logger.addFilter(WARNING_FILTER)

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MAX_NAMES = 300
"""The characters of a Host and an Origin that are remembered or logged; names of hosts have at most 253."""
_MAX_REMEMBERED = 1024


class AllowedNames:
    """Protects a server from web pages that reach for it, also by a name that they let point to its address."""

    def __init__(self, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._admitted: set[tuple[bytes | None, bytes | None]] = set()

    def check(self, exchange: Exchange) -> Failure | None:
        """Returns a failure if the Host or the Origin is not allowed."""
        names = (exchange.headers.get(b"host"), exchange.headers.get(b"origin"))
        refused = None
        # RFC 9112, 3.2: a server must refuse more than one Host, which is a means of request smuggling.
        if exchange.has_repeated((b"host", b"origin")):
            refused = Failure(Fault.WRONG_HOST, "The request has more than one Host or Origin header.")
        elif names not in self._admitted:
            if not self._is_host(names[0]) and "*" not in self._hosts:
                refused = Failure(Fault.WRONG_HOST, "This Host is not among the allowed_hosts.")
            elif names[1] is not None and not self._is_origin(names[1], names[0]):
                refused = Failure(Fault.WRONG_ORIGIN, "This Origin is not among the allowed_origins.")
            elif len(self._admitted) < _MAX_REMEMBERED and sum(len(name or b"") for name in names) < _MAX_NAMES:
                self._admitted.add(names)
        if refused is not None:
            host, origin = (name and name[:_MAX_NAMES] for name in names)
            logger.warning("refused Host %r, Origin %r: %s", host, origin, refused.message)
        return refused

    def _is_host(self, host: bytes | None) -> bool:
        name = (host or b"").decode("latin-1").lower()
        bare, _, port = name.rpartition(":")
        return name in self._hosts or (port.isdigit() and bare in self._hosts)

    def _is_origin(self, origin: bytes, host: bytes | None) -> bool:
        """Whether an origin is allowed, is that of an allowed host, or is that of the request's own host."""
        text = origin.decode("latin-1").lower()
        if text in self._origins or "*" in self._origins:
            return True
        origin_host = text.partition("://")[2].encode("latin-1")
        return self._is_host(origin_host) or (bool(origin_host) and origin_host == (host or b"").lower())
