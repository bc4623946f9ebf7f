"""Load over HTTP from a process of its own: by wrk or, where that is not installed, by a loop in Python."""

import json
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.machine import CLIENT_CORE, run_on_core

IDS = 4096
"""Requests made beforehand and sent in turn: no two in flight have one id."""

_LOOP = Path(__file__).with_name("load_loop.py")
_LUA = """
local requests, sent = {}, 0
function init(args)
  for id = 1, %(ids)d do
    requests[id] = wrk.format("POST", "%(path)s", {%(headers)s}, [==[%(before)s]==] .. id .. [==[%(after)s]==])
  end
end
function request()
  sent = sent %% %(ids)d + 1
  return requests[sent]
end
function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    'DONE {"requests":%%d,"microseconds":%%d,"bytes":%%d,"errors":%%d,"p50_us":%%f,"p99_us":%%f}\\n',
    summary.requests, summary.duration, summary.bytes,
    e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(50), latency:percentile(99)))
end
"""


class RequestTemplate(NamedTuple):
    """What is posted: `before`, the request's id, `after`."""

    headers: dict[str, str]
    before: str
    after: str
    path: str = "/mcp"


class LoadTotals(NamedTuple):
    """What a load generator counted."""

    requests: int
    microseconds: float
    bytes: int
    errors: int
    p50_us: float
    p99_us: float


def generator() -> str:
    """Names the load generator, for people to read."""
    return "wrk" if shutil.which("wrk") else "a loop in Python, wrk not being installed"


def run_load(port: int, template: RequestTemplate, connections: int, seconds: float) -> LoadTotals:
    """Loads a server: each connection sends, waits for the whole reply and sends again; wrk does so for whole seconds.

    Raises:
        RuntimeError: there was no load.
    """
    wrk = shutil.which("wrk")
    return (
        _wrk(wrk, port, template, connections, math.ceil(seconds))
        if wrk
        else _loop(port, template, connections, seconds)
    )


def _wrk(wrk: str, port: int, template: RequestTemplate, connections: int, seconds: int) -> LoadTotals:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "load.lua"
        script.write_text(wrk_script(template))
        command = [wrk, "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(script)]
        return _run([*command, f"http://127.0.0.1:{port}"], "", seconds)


def _loop(port: int, template: RequestTemplate, connections: int, seconds: float) -> LoadTotals:
    job = {"port": port, "ids": IDS, "connections": connections, "seconds": seconds, **template._asdict()}
    return _run([sys.executable, "-EP", str(_LOOP)], json.dumps(job), seconds)


def _run(command: list[str], given: str, seconds: float) -> LoadTotals:
    with run_on_core(CLIENT_CORE):
        ran = subprocess.run(command, input=given, capture_output=True, text=True, timeout=seconds + 30, check=False)
    totals = parse_totals(ran.stdout)
    if totals is None:
        raise RuntimeError(f"{command[0]} says {ran.stdout} {ran.stderr}")
    return totals


def wrk_script(template: RequestTemplate) -> str:
    """The Lua script by which wrk sends the requests and prints its totals."""
    headers = ", ".join(f"[{json.dumps(name)}] = {json.dumps(value)}" for name, value in template.headers.items())
    return _LUA % {**template._asdict(), "ids": IDS, "headers": headers}


def parse_totals(output: str) -> LoadTotals | None:
    """Finds the totals in what a load generator printed."""
    printed = next((line[5:] for line in output.splitlines() if line.startswith("DONE ")), None)
    return None if printed is None else LoadTotals(**json.loads(printed))
