"""Attacks on the page of metrics, which needs no credentials."""

from collections.abc import Callable

from bench.hostile.attack import Answered, Attack, Prepared
from bench.hostile.attacked_server import AttackedServer
from bench.hostile.flood import Flood, write_request
from bench.hostile.lite_attacks import lite_request
from bench.hostile.servers.options import ServerOptions

_OPERATIONS = 1_000
_OPTIONS = ServerOptions(metrics=True, operations=_OPERATIONS)
_SECONDS = 4.0


def _call_each(server: AttackedServer) -> Prepared:
    """Calls every operation once, so that each has its lines on the page."""

    def make(number: int) -> bytes:
        params = {"name": f"operation_{number}", "arguments": {"text": "x"}}
        return lite_request("rpc", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})

    Flood(server.port, make, 8).run(60, _OPERATIONS)


def _read_page(clients: int) -> Callable[[AttackedServer, Prepared], Answered]:
    request = write_request("GET", "/metrics")
    return lambda server, _: Answered(Flood(server.port, lambda _: request, clients).run(_SECONDS).text)


METRICS_ATTACKS: tuple[Attack, ...] = (
    Attack("metrics", "`/metrics` of 1,000 operations, one client", _read_page(1), _call_each, options=_OPTIONS),
    Attack("metrics-at-once", "the same, eight clients", _read_page(8), _call_each, options=_OPTIONS),
)
