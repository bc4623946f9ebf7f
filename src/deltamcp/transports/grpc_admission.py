"""Says who sends a gRPC request, and whether it may: request id, address, rates and credentials, as over HTTP."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from deltamcp.auth.authenticator import Authenticator, Credentials
from deltamcp.calls.engine import Engine
from deltamcp.errors import Fault
from deltamcp.runtime.turns import LoopTurns
from deltamcp.transports import asgi_messages
from deltamcp.transports.grpc_connection import CALL_KEY
from deltamcp.transports.grpc_options import GrpcOptions
from deltamcp.transports.http_request_ids import HttpRequestIds
from deltamcp.transports.quota import REQUESTS_AT_ONCE
from deltamcp.transports.trusted_proxies import TrustedProxies
from deltamcp.values import ANONYMOUS, Caller, Failure

TakeCall = Callable[[Any], str | None]
"""Takes a call by its context; returns the client's address, None if its connection has closed."""
GONE = Failure(Fault.INVALID_REQUEST, "The connection of this call has closed.")
_Pairs = tuple[tuple[str, str | bytes], ...]


class GrpcRequest(Struct):
    """An admitted request: its sender, and what its metadata says."""

    caller: Caller
    pairs: _Pairs

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        return {key.encode(): _bytes(value) for key, value in self.pairs}

    @property
    def takes_json(self) -> bool:
        """Whether the client reads results in `result_json`, and tools in `definition_json`."""
        return ("mcplite-accept", "result-json") in self.pairs

    @property
    def is_strict(self) -> bool:
        """Whether the client knows only the response types of the specification's own file."""
        return ("mcplite-strict", "1") in self.pairs


class GrpcAdmission:
    """Admits requests to one server."""

    def __init__(self, engine: Engine, options: GrpcOptions, take_call: TakeCall) -> None:
        self._engine = engine
        self._rates = engine.rates
        self._turns = LoopTurns(REQUESTS_AT_ONCE)
        self._auth = options.get("auth")
        self._take_call = take_call
        self._proxies = TrustedProxies(options.get("trusted_proxies", ()))
        self._request_ids = HttpRequestIds() if options.get("request_ids") else None
        if self._auth is not None:
            engine.lifespan.add_closer(self._auth.close)

    async def admit(self, context: Any) -> GrpcRequest | Failure:
        """Returns the request of a call, or why it is refused; sets the request id in the call's trailing metadata."""
        pairs: _Pairs = tuple((key, value) for key, value in context.invocation_metadata() or () if key != CALL_KEY)
        if self._request_ids is not None:
            sent = {key.encode(): _bytes(value) for key, value in pairs if key == "x-request-id"}
            added = self._request_ids.begin(sent)
            context.set_trailing_metadata([(key.decode(), value.decode()) for key, value in added])
        peer = self._take_call(context)
        if peer is None:
            return GONE
        if self._proxies:
            peer = self._client_behind(peer, pairs)
        address = asgi_messages.client_address({"client": (peer, 0)})
        await self._turns.take(address)
        if self._rates is not None:
            refused = await self._rates.check_address(address)
            if refused is not None:
                return refused
        if self._auth is None:
            return GrpcRequest(self._engine.identify(ANONYMOUS, None, address), pairs)
        return await self._authenticate(self._auth, address, pairs)

    async def _authenticate(self, auth: Authenticator, address: str, pairs: _Pairs) -> GrpcRequest | Failure:
        values = [value for key, value in pairs if key == "authorization"]
        if len(values) > 1:
            return Failure(Fault.INVALID_REQUEST, "The request has more than one authorization in its metadata.")
        authorization = _bytes(values[0]).decode("latin-1") if values else None
        found = await auth.authenticate(Credentials(authorization, _scope(address, pairs), address))
        if isinstance(found, Failure):
            return found
        caller = self._engine.identify(found, None, address)
        refused = None if self._rates is None else await self._rates.check_principal(caller)
        if refused is None and self._engine.catalog.prepare is not None:
            await self._engine.catalog.prepare(found)
        return refused or GrpcRequest(caller, pairs)

    def challenge(self, failure: Failure) -> str | None:
        """Returns which credentials a refused request needs, as HTTP's `WWW-Authenticate` says it; None if none."""
        if self._auth is None or failure.fault not in (Fault.UNAUTHORIZED, Fault.INSUFFICIENT_SCOPE):
            return None
        return self._auth.challenge(failure)

    def _client_behind(self, address: str, pairs: _Pairs) -> str:
        scope = _scope(address, pairs)
        resolved = self._proxies.resolve(scope, dict(scope["headers"]))
        return str(resolved["client"][0])


def _scope(address: str, pairs: _Pairs) -> dict[str, Any]:
    """Returns the description of a request as ASGI has it over HTTP."""
    headers = [(key.encode(), _bytes(value)) for key, value in pairs]
    return {"type": "grpc", "client": (address, 0), "headers": headers}


def _bytes(value: str | bytes) -> bytes:
    return value.encode("latin-1", "replace") if isinstance(value, str) else value
