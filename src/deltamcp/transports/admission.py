"""Admits requests over HTTP and gRPC: the steps that each passes, in their order, before its message is read.

1. `begin`: its request id, and its client, perhaps behind trusted proxies.
2. `turns`: its turn among the clients.
3. `check_rate`: the rate of the client's address.
4. `identify`: its credentials, and the rate of the principal that they are of.
"""

import functools
import ipaddress
import itertools
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from deltamcp.auth.authenticator import Authenticator, Credentials
from deltamcp.calls.engine import Engine
from deltamcp.calls.rate_limits import Rates
from deltamcp.errors import ConfigurationError, Fault
from deltamcp.runtime.http_request_id import HTTP_REQUEST_ID
from deltamcp.runtime.quota import REQUESTS_AT_ONCE, LoopTurns
from deltamcp.transports.http.asgi import HeaderList, Headers, Scope, client_address
from deltamcp.values import ANONYMOUS, Caller, Failure

_HEADER = b"x-request-id"
_WELL_FORMED = re.compile(rb"[\x21-\x7e]{1,128}")
"""Visible ASCII: a log line cannot be forged with it, and a header neither."""
_KEPT_SENDERS = 4096
"""The hosts whose callers are kept, so that most requests need not make one."""
_HOST_CHARS = 64
"""A longer name of a host is not kept; behind a proxy it may be any text."""


class HttpRequestIds:
    """Takes the id that a request has, or makes one that no other request has."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._prefix = b""

    def begin(self, headers: Headers) -> tuple[tuple[bytes, bytes], ...]:
        """Sets the id of the request that is served, and returns the headers of its response."""
        id_ = headers.get(_HEADER)
        if id_ is None or _WELL_FORMED.fullmatch(id_) is None:
            if not self._prefix:  # not before, because processes may be forked
                self._prefix = secrets.token_hex(8).encode()
            id_ = b"%b-%d" % (self._prefix, next(self._numbers))
        HTTP_REQUEST_ID.set(id_.decode("ascii"))
        return ((_HEADER, id_),)


_TWO_AUTHORIZATIONS = Failure(Fault.INVALID_REQUEST, "The request has more than one Authorization header.")


class Arrival(Struct, gc=False):
    """A request over HTTP or gRPC that has arrived: its head, and who sends it."""

    scope: Any
    """The head as ASGI describes it, also of a request over gRPC."""
    headers: dict[bytes, bytes]
    address: str
    """The client's address, see `asgi.client_address`."""
    caller: Caller
    """Anonymous until `Admission.identify` finds who it is."""


class Admission:
    """Admits the requests of one server."""

    def __init__(
        self, engine: Engine, auth: Authenticator | None, trusted_proxies: Sequence[str], request_ids: bool
    ) -> None:
        self._engine = engine
        self._auth = auth
        self.rates: Rates | None = engine.rates
        self.turns: LoopTurns = LoopTurns(REQUESTS_AT_ONCE)
        self._request_ids = HttpRequestIds() if request_ids else None
        self.proxies: TrustedProxies | None = TrustedProxies(trusted_proxies) if trusted_proxies else None
        """None if nobody is believed to pass on requests of others."""
        self._kept_sender = functools.lru_cache(_KEPT_SENDERS)(self._make_sender)
        if auth is not None:
            engine.lifespan.add_closer(auth.close)

    def begin(self, scope: Scope, headers: Headers) -> tuple[HeaderList, Scope, tuple[str, Caller]]:
        """Begins a request, which gets its id.

        Returns what its response says of that; its scope, with the client behind proxies; and that client's address,
        with the caller as long as nobody has asked for its credentials.
        """
        added = () if self._request_ids is None else self._request_ids.begin(headers)
        if self.proxies is not None:
            scope = self.proxies.resolve(scope, headers)
        client = scope.get("client")
        host = client[0] if client else ""
        return added, scope, (self._kept_sender if len(host) <= _HOST_CHARS else self._make_sender)(host)

    def _make_sender(self, host: str) -> tuple[str, Caller]:
        address = client_address({"client": (host, 0)})
        return address, self._engine.identify(ANONYMOUS, None, address)

    async def check_rate(self, arrival: Arrival) -> Failure | None:
        """Counts the request for its address; returns a failure if there are too many."""
        return None if self.rates is None else await self.rates.check_address(arrival.address)

    async def identify(self, arrival: Arrival) -> Failure | None:
        """Sets the caller of a request by its credentials, and counts it for them; or returns why it is refused."""
        if self._auth is None:
            return None
        values = [value for name, value in arrival.scope["headers"] if name == b"authorization"]
        if len(values) > 1:
            return _TWO_AUTHORIZATIONS
        return await self.identify_by(values[0] if values else None, arrival)

    async def identify_by(self, authorization: bytes | None, arrival: Arrival) -> Failure | None:
        """Does what `identify` does, with this value of `Authorization`."""
        if self._auth is None:
            return None
        text = None if authorization is None else authorization.decode("latin-1")
        found = await self._auth.authenticate(Credentials(text, arrival.scope, arrival.address))
        if isinstance(found, Failure):
            return found
        arrival.caller = self._engine.identify(found, None, arrival.address)
        refused = None if self.rates is None else await self.rates.check_principal(arrival.caller)
        if refused is None and self._engine.catalog.prepare is not None:
            await self._engine.catalog.prepare(found)
        return refused

    def challenge(self, failure: Failure) -> str | None:
        """Returns which credentials a refused request needs, as `WWW-Authenticate` says it; None if none."""
        if self._auth is None or failure.fault not in (Fault.UNAUTHORIZED, Fault.INSUFFICIENT_SCOPE):
            return None
        return self._auth.challenge(failure)


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Hop = tuple[str, str]
"""Who sent the request to a proxy, as that proxy wrote it, and by which scheme; empty if it does not say."""

UNIX = "unix"
"""Stands for every connection over a Unix socket, which has no address."""
_MAX_CHARS = 4096
"""A longer header says nothing; fifty proxies in a row write less."""
_MAX_CACHED_CHARS = 256
# RFC 7239, section 4. Addresses need quotes if they contain a colon; some proxies leave them out.
_PAIR = re.compile(r'[ \t]*([A-Za-z0-9_-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]*))[ \t]*([;,]|$)')
_EMPTY = re.compile(r"[ \t]*(,|$)")


class TrustedProxies:
    """Finds the client of a request that came through proxies, from the nearest proxy on, while they are trusted.

    What an untrusted sender wrote further left does not count. If the headers cannot be read, or `Forwarded` and
    `X-Forwarded-For` differ, because a proxy sets one and passes on the other as its client sent it, the client is the
    proxy itself.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """
        Raises:
            ConfigurationError: a name is no address, no network and not "unix".
        """
        names = tuple(names)
        self._networks = tuple(_read_network(name) for name in names if name != UNIX)
        self._trusts_unix = UNIX in names
        self._trusts_address = functools.lru_cache(maxsize=1024)(self._is_trusted)
        self._find_recent = functools.lru_cache(maxsize=1024)(self._find_client)

    def __bool__(self) -> bool:
        return self._trusts_unix or bool(self._networks)

    def trusts(self, client: Sequence[object] | None) -> bool:
        """Whether a connection comes from a trusted proxy; `client` is the one of the ASGI scope."""
        return self._trusts_address(str(client[0])) if client else self._trusts_unix

    def resolve(self, scope: Scope, headers: Headers) -> Scope:
        """Returns the scope with the client and the scheme that trusted proxies name; else the scope itself."""
        if not self.trusts(scope.get("client")):
            return scope
        forwarded = _join(scope, headers, b"forwarded")
        forwarded_for = _join(scope, headers, b"x-forwarded-for")
        scheme = _join(scope, headers, b"x-forwarded-proto")
        if forwarded is None and forwarded_for is None:
            return scope
        sizes = len(forwarded or "") + len(forwarded_for or "") + len(scheme or "")
        find = self._find_recent if sizes <= _MAX_CACHED_CHARS else self._find_client
        found = find(forwarded, forwarded_for, scheme)
        if found is None:
            return scope
        address, scheme = found
        resolved = {**scope, "client": (address, 0)}
        if scheme:
            resolved["scheme"] = scheme
        return resolved

    def _is_trusted(self, address: str) -> bool:
        found = _read_address(address)
        return found is not None and self._contains(found)

    def _contains(self, address: _Address) -> bool:
        return any(address in network for network in self._networks)

    def _find_client(
        self, forwarded: str | None, forwarded_for: str | None, forwarded_proto: str | None
    ) -> tuple[str, str] | None:
        """Returns the client's address and scheme, which may be empty; None if they cannot be told."""
        scheme = (forwarded_proto or "").lower()
        chains = []
        if forwarded is not None:
            chains.append(_read_forwarded(forwarded))
        if forwarded_for is not None:
            chains.append([(node.strip(), scheme) for node in forwarded_for.split(",") if node.strip()])
        found = {self._walk(chain) for chain in chains}
        addresses = {one[0] for one in found if one is not None}
        if None in found or len(addresses) != 1:
            return None
        schemes = {one[1] for one in found if one is not None} & {"http", "https"}
        return addresses.pop(), schemes.pop() if len(schemes) == 1 else ""

    def _walk(self, chain: Sequence[_Hop]) -> _Hop | None:
        """Returns the first sender, from the nearest on, that is no trusted proxy; or else the farthest."""
        client = None
        for node, scheme in reversed(chain):
            address = _read_node(node)
            if address is None:
                return None
            client = (str(address), scheme)
            if not self._contains(address):
                break
        return client


def _join(scope: Scope, headers: Headers, name: bytes) -> str | None:
    """Returns all values of a header in their order; a very long one is as good as one that cannot be read."""
    if name not in headers:
        return None
    text = b",".join(value for key, value in scope["headers"] if key == name).decode("latin-1")
    return text if len(text) <= _MAX_CHARS else "?"


def _read_forwarded(text: str) -> list[_Hop]:
    """Reads a `Forwarded` header (RFC 7239); one that is malformed has a sender that cannot be read."""
    hops: list[_Hop] = []
    pairs: dict[str, str] = {}
    place = 0
    while place < len(text):
        empty = None if pairs else _EMPTY.match(text, place)
        if empty is not None:
            place = empty.end()
            continue
        found = _PAIR.match(text, place)
        if found is None or found[1].lower() in pairs:
            return [("?", "")]
        value = found[3] if found[2] is None else re.sub(r"\\(.)", r"\1", found[2])
        pairs[found[1].lower()] = value
        if found[4] != ";":
            hops.append((pairs.get("for", "?"), pairs.get("proto", "").lower()))
            pairs = {}
        place = found.end()
    return hops if not pairs else [("?", "")]


def _read_node(text: str) -> _Address | None:
    """Reads an address that may have a port; None for names, such as "unknown" and "_hidden"."""
    if text.startswith("["):
        address, _, port = text[1:].partition("]")
        return _read_address(address) if ":" in address and (not port or port.startswith(":")) else None
    return _read_address(text.partition(":")[0] if text.count(":") == 1 else text)


def _read_address(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _read_network(name: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(name)
    except ValueError:
        raise ConfigurationError(
            f'trusted_proxies takes addresses, networks such as "10.0.0.0/8", or "unix", not {name!r}.'
        ) from None
