"""The server that costly requests are looked for on: it is started anew when a request has broken it."""

import contextlib
import json
import time
from typing import Any

from bench import messages
from bench.hostile import endpoints as schemas
from bench.hostile import search
from bench.hostile.attacked_server import (
    MEGABYTE,
    AttackedServer,
    HttpCaller,
    HttpReply,
    OtherCallerProcess,
    discover_request,
    modern_headers,
    reset_peak,
    resident_bytes,
)
from bench.hostile.endpoints import Endpoint
from bench.hostile.flood import Flood, write_request
from bench.hostile.grpc_attacks import call_together
from bench.hostile.payloads import MESSAGE_BYTES
from bench.hostile.rule import ATTEMPTS, Measured
from bench.hostile.search import Candidate, Cost, Found
from bench.hostile.servers.options import ServerOptions
from bench.hostile.stores import SkippedError
from bench.peers import OURS
from deltamcp import Limits
from deltamcp.values import Era

_OPTIONS = ServerOptions(disclosure="meta", grpc_port=-1)
_REQUEST_SECONDS = 6.0
_MOST_MEGABYTES = 600
"""A server that has grown by more is started anew."""
_CONTENT_TYPES = {
    "json": "application/json",
    "compact-json": "application/json; variant=compact",
    "cbor": "application/cbor",
}
_STORED_MB = Limits().stored_bytes_per_account / MEGABYTE
"""As much as one address may have stored."""
_LITE_HEADERS = {"Accept": "application/json"}
_ENDLESS = "subscriptions/listen"


def find_endpoints() -> list[Endpoint]:
    """The endpoints of the attacked server.

    Raises:
        SkippedError: MCP's schemas are not there.
    """
    found: list[Endpoint] = []
    for era in Era:
        schema = schemas.read_schema(era)
        if schema is None:
            raise SkippedError(f"there are no schemas of MCP in {schemas.SCHEMAS}; DELTA_MCP_SHARED names their folder")
        found += schemas.endpoints(schema, era)
    samples: dict[str, dict[str, Any]] = {
        "continue": {"handle": "@handle"},
        "execute": {"operation": "echo", "params": {"text": "x"}},
    }
    calls: list[Endpoint] = []
    for disclosure in ("full", "meta"):
        with AttackedServer(OURS, ServerOptions(disclosure=disclosure)) as server:
            listed = HttpCaller(server.port).request("tools/list", {}).result["tools"]
        calls += schemas.calls([tool for tool in listed if tool["name"] != "settle"], samples)
    found += [*calls, schemas.policies("list_rows"), schemas.policies("echo_in_parts")]
    return [*found, *schemas.lite_endpoints(calls), *schemas.grpc_calls(calls)]


class SearchedServer:
    """Tries requests on one server. Leaving the `with` block kills it."""

    def __init__(self, found: list[Endpoint]) -> None:
        self._endpoints = found
        self._stack = contextlib.ExitStack()
        self.tried = 0

    def __enter__(self) -> "SearchedServer":
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        self._stack.close()
        self._server = self._stack.enter_context(AttackedServer(OURS, _OPTIONS))
        self._caller = HttpCaller(self._server.port, seconds=_REQUEST_SECONDS)
        self._handle = self._caller.store("list_rows_in_parts")
        self._session = self._caller.open_session().session
        self._other = self._stack.enter_context(OtherCallerProcess(self._server.port, *discover_request()))
        time.sleep(0.3)
        self._usual = self._other.report().median
        self._size = resident_bytes(self._server.process.pid)

    def try_(self, candidate: Candidate) -> Cost:
        """Sends a candidate and measures what others waited meanwhile, and how much the server grew."""
        self.tried += 1
        pid = self._server.process.pid
        before = resident_bytes(pid)
        reset_peak(pid)
        size, reply = self._send(candidate)
        waits = self._other.report()
        cost = Cost(
            max(0.0, waits.longest - self._usual) * 1e3,
            (resident_bytes(pid, peak=True) - before) / MEGABYTE,
            size,
            "no answer in time" if reply is None else reply.sentence,
            _STORED_MB if self._is_stored(candidate) else 0.0,
        )
        grown = (resident_bytes(pid) - self._size) / MEGABYTE
        if reply is None or self._server.has_ended or not grown < _MOST_MEGABYTES:
            self._start()
        return cost

    def _is_stored(self, candidate: Candidate) -> bool:
        """Whether many results may have been stored."""
        name = str(self._endpoints[candidate.endpoint].params.get("name", ""))
        return name.endswith("_in_parts") and candidate.batch * candidate.connections > 1

    def _send(self, candidate: Candidate) -> tuple[int, HttpReply | None]:
        """The size of what is sent, and a reply to it; None if there is none in time."""
        endpoint = self._endpoints[candidate.endpoint]
        sent = json.loads(json.dumps(endpoint.message()).replace("@handle", self._handle))
        if endpoint.is_grpc:
            return self._call(candidate, search.encode_grpc(candidate, sent))
        body = search.encode(candidate, sent)
        headers = _LITE_HEADERS if endpoint.is_lite else self._headers(endpoint, sent["params"])
        headers = headers | {"Content-Type": _CONTENT_TYPES[candidate.encoding]}
        size = len(body) * candidate.connections
        try:
            if endpoint.method == _ENDLESS:
                return size, self._listen(body, headers, candidate.connections)
            if candidate.connections > 1:
                request = write_request("POST", endpoint.path, body, headers)
                flood = Flood(self._server.port, lambda _: request, candidate.connections)
                found = flood.run(_REQUEST_SECONDS, candidate.connections)
                return size, HttpReply(200, found.text.encode()) if found.answered else None
            return size, self._caller.ask("POST", endpoint.path, body, headers)
        except TimeoutError:
            return size, None
        except OSError:
            return size, HttpReply(0, b"")

    def _call(self, candidate: Candidate, message: bytes) -> tuple[int, HttpReply | None]:
        """Makes calls over gRPC."""
        size = len(message) * candidate.connections
        if len(message) > MESSAGE_BYTES:
            return size, HttpReply(0, b"")
        try:
            said = call_together(self._server, message, candidate.connections)
        except OSError:
            return size, HttpReply(0, b"")
        return size, None if "no answer" in said else HttpReply(200, said[0].encode())

    def _listen(self, body: bytes, headers: dict[str, str], connections: int) -> HttpReply:
        """Opens streams, and leaves them."""
        status = 400
        with contextlib.ExitStack() as stack:
            for _ in range(connections):
                stream = stack.enter_context(self._caller.send(body, headers))
                status = 200 if b"200 OK" in stream.recv(64) else 400
        return HttpReply(status, b"")

    def _headers(self, endpoint: Endpoint, params: dict[str, Any]) -> dict[str, str]:
        if endpoint.method == "initialize":
            return messages.headers(None, "initialize")
        name = params.get("name", params.get("uri"))
        return modern_headers(endpoint.method, name, self._session if endpoint.era is Era.HANDSHAKE else None)


def confirm(one: Found, endpoints: list[Endpoint]) -> Measured:
    """The figures of what was found; what breaks the rule is measured again on new servers, for the best figures."""
    costs = [one.cost]
    while min(cost.severity for cost in costs) > 1 and len(costs) < ATTEMPTS:
        with SearchedServer(endpoints) as server:
            costs.append(server.try_(one.candidate))
    return Measured(
        waited_ms=min(cost.waited_ms for cost in costs),
        grown_mb=min(cost.grown_mb for cost in costs),
        answered=costs[-1].answered,
        stored_mb=costs[-1].stored_mb,
        attempts=len(costs),
    )
