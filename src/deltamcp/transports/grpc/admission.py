"""Says who sends a gRPC request, and whether it may: what `Admission` asks for of its metadata."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from deltamcp.calls.engine import Engine
from deltamcp.errors import Fault
from deltamcp.transports.admission import Admission
from deltamcp.transports.grpc.connection import CALL_KEY
from deltamcp.transports.grpc_options import GrpcOptions
from deltamcp.values import Caller, Failure

TakeCall = Callable[[Any], str | None]
"""Takes a call by its context; returns the client's address, None if its connection has closed."""
GONE = Failure(Fault.INVALID_REQUEST, "The connection of this call has closed.")


class GrpcRequest(Struct):
    """An admitted request: its sender, and what its metadata says."""

    caller: Caller
    pairs: Sequence[tuple[bytes, bytes]]

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        return dict(self.pairs)

    @property
    def takes_json(self) -> bool:
        """Whether the client reads results in `result_json`, and tools in `definition_json`."""
        return (b"mcplite-accept", b"result-json") in self.pairs

    @property
    def is_strict(self) -> bool:
        """Whether the client knows only the response types of the specification's own file."""
        return (b"mcplite-strict", b"1") in self.pairs


class GrpcAdmission:
    """Admits requests to one server."""

    def __init__(self, engine: Engine, options: GrpcOptions, take_call: TakeCall) -> None:
        proxies, request_ids = options.get("trusted_proxies", ()), options.get("request_ids", False)
        self._admission = Admission(engine, options.get("auth"), proxies, request_ids)
        self._take_call = take_call
        self.challenge = self._admission.challenge

    async def admit(self, context: Any) -> GrpcRequest | Failure:
        """Returns the request of a call, or why it is refused; sets the request id in the call's trailing metadata."""
        pairs = context.invocation_metadata() or ()
        headers = [(key.encode(), _bytes(value)) for key, value in pairs if key != CALL_KEY]
        by_name = dict(headers)
        added = self._admission.begin(by_name)
        if added:
            context.set_trailing_metadata([(key.decode(), value.decode()) for key, value in added])
        peer = self._take_call(context)
        if peer is None:
            return GONE
        described = {"type": "grpc", "client": (peer, 0), "headers": headers}
        scope, address = await self._admission.arrive(described, by_name)
        found = await self._admission.check_rate(address) or await self._admission.identify(scope, address)
        return found if isinstance(found, Failure) else GrpcRequest(found, headers)


def _bytes(value: str | bytes) -> bytes:
    return value.encode("latin-1", "replace") if isinstance(value, str) else value
