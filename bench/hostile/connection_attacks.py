"""Many connections that do cheap things at once: what is nothing for one client may be much for hundreds."""

import contextlib
import re
import time
from collections.abc import Callable

from bench import messages
from bench.hostile.attack import Answered, Attack, Prepared, attacker, held_open, open_session
from bench.hostile.attacked_server import MEGABYTE, AttackedServer, discover_request, modern_headers
from bench.hostile.credential_attacks import TOKENS, bob_discovers
from bench.hostile.flood import Flood, Follow, MakeRequest, write_request
from bench.hostile.servers.options import ServerOptions
from deltamcp import Limits
from deltamcp.values import Era

CONNECTIONS = (50, 200, 900)
"""An address has an eighth of the 8,000 connections that a server takes."""
_SECONDS = 2.5
_SESSION = re.compile(rb"(?i)\r\nmcp-session-id: *([^\r\n]+)")
_ORIGIN = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}


def _post(method: str, era: Era = Era.MODERN) -> bytes:
    return write_request("POST", "/mcp", messages.request(era, method), messages.headers(era, method))


def _same(request: bytes) -> MakeRequest:
    return lambda _: request


def _flood(
    make: MakeRequest, connections: int, follow: Follow = lambda _: None
) -> Callable[[AttackedServer, Prepared], Answered]:
    return lambda server, _: Answered(Flood(server.port, make, connections, follow).run(_SECONDS).text)


def _ping(connections: int) -> Callable[[AttackedServer, Prepared], Answered]:
    """Pings in one session."""

    def run(server: AttackedServer, session: Prepared) -> Answered:
        headers = messages.headers(Era.HANDSHAKE, "ping", session=session)
        request = write_request("POST", "/mcp", messages.request(Era.HANDSHAKE, "ping"), headers)
        return Answered(Flood(server.port, _same(request), connections).run(_SECONDS).text)

    return run


def _end_session(head: bytes) -> bytes | None:
    """Ends the session that a reply has opened."""
    found = _SESSION.search(head)
    if found is None:
        return None
    return write_request("DELETE", "/mcp", b"", {"Mcp-Session-Id": found.group(1).decode()})


def _unknown_path(number: int) -> bytes:
    return write_request("GET", f"/nothing/{number}")


def _bad_token(number: int) -> bytes:
    body, headers = discover_request()
    return write_request("POST", "/mcp", body, headers | {"Authorization": f"Bearer dmcp_{number}"})


def _listen(connections: int) -> Callable[[AttackedServer, Prepared], Answered]:
    """Opens streams, holds them for a while, and closes all of them."""

    def run(server: AttackedServer, _: Prepared) -> Answered:
        body = messages.request(Era.MODERN, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        headers, begun = modern_headers("subscriptions/listen"), 0
        with held_open() as opened:
            for _ in range(connections):
                with contextlib.suppress(OSError):
                    opened.append(attacker(server).send(body, headers))
            time.sleep(_SECONDS)
            for one in opened:
                one.settimeout(0.5)
                with contextlib.suppress(OSError):
                    begun += one.recv(12).startswith(b"HTTP/1.1 200")
        return Answered(f"{begun} of {connections} streams have begun")

    return run


def _cut_results(connections: int) -> Callable[[AttackedServer, Prepared], Answered]:
    """Calls whose results are large, cut and stored; the search found them."""
    body = messages.call(Era.MODERN, "get_settings_in_parts", {})
    request = write_request("POST", "/mcp", body, modern_headers("tools/call", "get_settings_in_parts"))
    stored = Limits().stored_bytes_per_account / MEGABYTE
    return lambda server, _: Answered(
        Flood(server.port, _same(request), connections).run(_SECONDS).text, stored_mb=stored
    )


_INITIALIZE = write_request("POST", "/mcp", messages.initialize(), messages.headers(None, "initialize"))


def _rows(connections: int) -> list[Attack]:
    def row(name: str, title: str, make: MakeRequest) -> Attack:
        return Attack(f"{name}-{connections}", f"{connections} connections: {title}", _flood(make, connections))

    return [
        row("discover", "`server/discover`", _same(_post("server/discover"))),
        Attack(
            f"ping-{connections}", f"{connections} connections: pings in a session", _ping(connections), open_session
        ),
        row("list", "`tools/list`", _same(_post("tools/list"))),
        row("method", "unknown methods", _same(_post("no/such"))),
        row("path", "unknown paths", _unknown_path),
        row("preflight", "preflights of browsers", _same(write_request("OPTIONS", "/mcp", b"", _ORIGIN))),
        row("health", "`/healthz`", _same(write_request("GET", "/healthz"))),
        Attack(
            f"session-{connections}",
            f"{connections} connections: sessions that are opened and ended",
            _flood(_same(_INITIALIZE), connections, _end_session),
        ),
        Attack(
            f"refused-{connections}",
            f"{connections} connections: tokens that nobody has",
            _flood(_bad_token, connections),
            others=bob_discovers,
            options=ServerOptions(tokens=TOKENS),
        ),
        Attack(
            f"stream-{connections}", f"{connections} connections: event streams, held and closed", _listen(connections)
        ),
        Attack(
            f"cut-{connections}",
            f"{connections} connections: results of 2.9 MB that are cut and stored",
            _cut_results(connections),
        ),
        Attack(
            f"metrics-{connections}",
            f"{connections} connections: `/metrics`",
            _flood(_same(write_request("GET", "/metrics")), connections),
            options=ServerOptions(metrics=True),
        ),
    ]


CONNECTION_ATTACKS: tuple[Attack, ...] = tuple(one for count in CONNECTIONS for one in _rows(count))
