"""What a promise adds to a call that needs none: the same function inline and promised, in turn, over HTTP."""

import http.client
import json
import statistics
import time

from bench.report import BenchReport, FigureTable, at_most

_CALLS = 300


def measure(ports: dict[str, int]) -> BenchReport:
    """Measures servers by the names of their stores."""
    rows: list[tuple[str, list[float | None]]] = []
    verdicts = []
    for store, port in ports.items():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for tool in ("inline", "promised"):
            for number in range(30):
                _call(connection, tool, number)
        pairs = [(_call(connection, "inline", n), _call(connection, "promised", n)) for n in range(_CALLS)]
        connection.close()
        inline, promised = (statistics.median(times) for times in zip(*pairs, strict=True))
        added = statistics.median(second - first for first, second in pairs)
        rows.append((f"store in {store}", [inline, promised, added]))
        verdicts.append(at_most(f"a promise adds to a call, store in {store}", added, 4, " ms"))
    table = FigureTable(
        "A call that ends at once, inline and by way of a promise",
        f"milliseconds, medians of {_CALLS} calls over HTTP in turn; added is the median of the differences",
        ["inline", "promised", "added"],
        rows,
    )
    return BenchReport([table], verdicts)


def _call(connection: http.client.HTTPConnection, tool: str, value: int) -> float:
    """Returns how many milliseconds a call takes."""
    params = {"name": tool, "arguments": {"value": value}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    start = time.perf_counter()
    connection.request("POST", "/mcp-lite/v1/calltools", body, {"content-type": "application/json"})
    reply = json.loads(connection.getresponse().read())
    milliseconds = 1000 * (time.perf_counter() - start)
    if reply["result"]["content"][0]["text"] != str(value):
        raise RuntimeError(f"{tool} was answered with {reply}")
    return milliseconds
