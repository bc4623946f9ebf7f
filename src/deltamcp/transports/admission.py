"""Admits requests over HTTP and gRPC: the steps that each passes, in their order, before its message is read.

1. `begin`: its request id, and its client, perhaps behind trusted proxies.
2. `turns`: its turn among the clients.
3. `check_rate`: the rate of the client's address.
4. `identify`: its credentials, and the rate of the principal that they are of.
"""

import functools
import itertools
import re
import secrets
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from deltamcp.auth.authenticator import Authenticator, Credentials
from deltamcp.calls.engine import Engine
from deltamcp.calls.rate_limits import Rates
from deltamcp.errors import Fault
from deltamcp.runtime.http_request_id import HTTP_REQUEST_ID
from deltamcp.runtime.quota import LoopTurns
from deltamcp.transports.http.asgi import HeaderList, Headers, Scope, client_address
from deltamcp.transports.quota import REQUESTS_AT_ONCE
from deltamcp.transports.trusted_proxies import TrustedProxies
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
