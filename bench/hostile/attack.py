"""`Attack`: a row of the table: what is prepared, what is sent, which others wait; and what many attacks share."""

import concurrent.futures
import contextlib
import dataclasses
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from bench.hostile.attacked_server import (
    ATTACKER,
    OTHER,
    AttackedServer,
    HttpCaller,
    HttpReply,
    call_request,
    discover_request,
)
from bench.hostile.payloads import sizes
from bench.hostile.servers.options import GatewayOptions, ServerOptions

RESULT_KEY = "io.github.delta-mcp/result"
EVENTS = {"Accept": "text/event-stream, application/json"}

Prepared = Any
RequestParts = tuple[bytes, dict[str, str] | None]
"""A body and its headers, or the frames of a gRPC call without any."""


class Answered(NamedTuple):
    """What came of an attack."""

    text: str
    broken: str = ""
    """What went wrong beside waiting and memory, as a sentence; empty if nothing did."""
    stored_mb: float = 0.0
    """The stored data that the attack made, or refers to."""


class Surroundings(NamedTuple):
    """What runs beside a server under attack: a store, servers behind it, an authorization server."""

    options: dict[str, Any]
    """The options by which the server finds it."""
    beside: Any
    """How the attack uses it."""


def _nothing(server: AttackedServer) -> Prepared:
    return None


def only_discover(server: AttackedServer, prepared: Prepared) -> dict[str, RequestParts]:
    return {"server/discover": discover_request()}


_USUAL = ServerOptions()


@dataclasses.dataclass(frozen=True)
class Attack:
    """One row of the table."""

    name: str
    title: str
    run: Callable[[AttackedServer, Prepared], Answered]
    prepare: Callable[[AttackedServer], Prepared] = _nothing
    for_peers: bool = False
    """Whether the attack is on something that the peers have too."""
    others: Callable[[AttackedServer, Prepared], dict[str, RequestParts]] = only_discover
    """The requests of others whose waits count."""
    keeps: bool = False
    """Whether the server stores something for a time, so that it is also measured after that time."""
    more_seconds: float = 0.0
    """How much longer than others the attack may take before it is ended."""
    options: ServerOptions | GatewayOptions = _USUAL
    surroundings: Callable[[], contextlib.AbstractContextManager[Surroundings]] | None = None
    """Starts what the server needs beside it, such as a store; the server's `beside` is then how to use that."""


def attacker(server: AttackedServer) -> HttpCaller:
    return HttpCaller(server.port, ATTACKER, 300)


def summarize(replies: Iterable[HttpReply]) -> str:
    """The different answers, in the order in which they came."""
    return "; ".join(list(dict.fromkeys(reply.sentence for reply in replies))[:3])


def is_accepted(reply: HttpReply) -> bool:
    return reply.status in (200, 202) and b'"error"' not in reply.body[:2_000]


def send_sizes(server: AttackedServer, make: Callable[[int], bytes], headers: dict[str, str]) -> Answered:
    """Posts the same attack at every size."""
    caller = attacker(server)
    return Answered(summarize([caller.post(make(size), headers) for size in sizes()]))


def send_together(server: AttackedServer, bodies: list[bytes], headers: dict[str, str]) -> list[HttpReply]:
    """Posts several requests at the same time."""
    caller = attacker(server)
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as threads:
        return list(threads.map(lambda body: caller.post(body, headers), bodies))


def open_session(server: AttackedServer) -> str:
    session = attacker(server).open_session().session
    if session is None:
        raise RuntimeError("no session")
    return session


def stored(tool: str) -> Callable[[AttackedServer], Prepared]:
    return lambda server: attacker(server).store(tool)


def make_calls(server: AttackedServer, tool: str, arguments: list[dict[str, Any]]) -> Answered:
    """Makes calls one after the other."""
    caller = attacker(server)
    return Answered(summarize([caller.call(tool, given) for given in arguments]))


@contextlib.contextmanager
def held_open() -> Iterator[list[socket.socket]]:
    """Sockets that stay open until the end of the block."""
    opened: list[socket.socket] = []
    try:
        yield opened
    finally:
        for one in opened:
            one.close()


def others_continue(server: AttackedServer, _: Prepared) -> dict[str, RequestParts]:
    """Another caller who reads on in a result of its own."""
    handle = HttpCaller(server.port, OTHER).store("list_rows_in_parts")
    return {
        "server/discover": discover_request(),
        "continue": call_request("continue", {"handle": handle, "offset": 50}),
    }


def others_call(server: AttackedServer, _: Prepared) -> dict[str, RequestParts]:
    return {"server/discover": discover_request(), "tools/call": call_request("echo", {"text": "x"})}
