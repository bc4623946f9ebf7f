"""Load over HTTP from a process of its own: by wrk or, where that is not installed, by a loop in Python."""

import json
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from deltamcp.bench.speed.machine import CLIENT_CORE, on_core

IDS = 4096
"""Requests made beforehand and sent in turn: no two in flight have one id."""

_LOOP = Path(__file__).with_name("load_loop.py")
_LUA = """
local requests, sent = {}, 0
function init(args)
  for id = 1, %(ids)d do
    requests[id] = wrk.format("POST", "/mcp", {%(headers)s}, [==[%(before)s]==] .. id .. [==[%(after)s]==])
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


class Sent(NamedTuple):
    """What is posted to /mcp: `before`, a number, `after`."""

    headers: dict[str, str]
    before: str
    after: str


class Done(NamedTuple):
    """What came of it."""

    requests: int
    microseconds: float
    bytes: int
    errors: int
    p50_us: float
    p99_us: float


def generator() -> str:
    """What will make the load, for people to read."""
    return "wrk" if shutil.which("wrk") else "a loop in Python, wrk not being installed"


def put(port: int, sent: Sent, connections: int, seconds: float) -> Done:
    """Each connection sends, waits for the whole reply and sends again; wrk does so for whole seconds.

    Raises:
        RuntimeError: there was no load.
    """
    wrk = shutil.which("wrk")
    return _wrk(wrk, port, sent, connections, math.ceil(seconds)) if wrk else _loop(port, sent, connections, seconds)


def _wrk(wrk: str, port: int, sent: Sent, connections: int, seconds: int) -> Done:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "load.lua"
        script.write_text(lua(sent))
        command = [wrk, "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(script)]
        return _run([*command, f"http://127.0.0.1:{port}"], "", seconds)


def _loop(port: int, sent: Sent, connections: int, seconds: float) -> Done:
    job = {"port": port, "ids": IDS, "connections": connections, "seconds": seconds, **sent._asdict()}
    return _run([sys.executable, "-EP", str(_LOOP)], json.dumps(job), seconds)


def _run(command: list[str], given: str, seconds: float) -> Done:
    with on_core(CLIENT_CORE):
        ran = subprocess.run(command, input=given, capture_output=True, text=True, timeout=seconds + 30, check=False)
    done = done_of(ran.stdout)
    if done is None:
        raise RuntimeError(f"{command[0]} says {ran.stdout} {ran.stderr}")
    return done


def lua(sent: Sent) -> str:
    """The script by which wrk sends these and tells what came of it."""
    headers = ", ".join(f"[{json.dumps(name)}] = {json.dumps(value)}" for name, value in sent.headers.items())
    return _LUA % {"ids": IDS, "headers": headers, "before": sent.before, "after": sent.after}


def done_of(output: str) -> Done | None:
    """What a generator told of its load, somewhere in what it printed."""
    told = next((line[5:] for line in output.splitlines() if line.startswith("DONE ")), None)
    return None if told is None else Done(**json.loads(told))
