"""Attacks on a gateway: by the servers behind it, and by its callers."""

import contextlib
import functools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import messages
from bench.hostile.attack import Answered, Attack, Prepared, Surroundings, attacker, held_open
from bench.hostile.attacked_server import AttackedServer, modern_headers
from bench.hostile.servers.options import GatewayOptions
from deltamcp.values import Era

_UPSTREAM = Path(__file__).with_name("hostile_upstream.py")
_IDLE_CPU_SECONDS = 0.3
"""What a gateway that has nothing to do but to answer others takes in a second, at most."""
START_SECONDS = 3.0
"""After so long a gateway has compared the first lists, for which it loads tables."""
HOSTILE_NAME = b"evilkey"
"""What is in every hostile name of a result."""
_LIST_SECONDS = 8.0
"""How long others are watched while a list arrives; the gateway compares lists every two seconds."""


@contextlib.contextmanager
def _behind(**job: Any) -> Iterator[Surroundings]:
    """A hostile server and a harmless one behind a gateway; the attack gets the file that opens the gate."""
    with tempfile.TemporaryDirectory() as folder:
        gate = Path(folder) / "gate"
        if "gate" in job:
            job["gate"] = str(gate)
        upstreams = [("evil", _entry(job)), ("tame", _entry({"tools": 5}))]
        yield Surroundings({"upstreams": upstreams, "folder": folder}, gate)


def _entry(job: dict[str, Any]) -> dict[str, Any]:
    words = ["-EP", str(_UPSTREAM), json.dumps(job)]
    policies = {"on_changed": "accept", "on_new": "announce", "on_imitation": "tell"}
    return {"command": sys.executable, "args": words, "speak": "handshake", "start": "ahead", **policies}


def _await_lists(server: AttackedServer) -> Prepared:
    """Waits until the gateway has the list of the harmless server."""
    for _ in range(200):
        found = attacker(server).call("discover", {"query": "get thing"})
        if b"tame.get_thing" in found.body:
            time.sleep(START_SECONDS)
            return None
        time.sleep(0.05)
    raise RuntimeError(f"the gateway offers nothing: {found.body[:300]!r}")


def _open_gate(seconds: float) -> Callable[[AttackedServer, Prepared], Answered]:
    """Lets the hostile server send its lists, and watches for so long."""

    def run(server: AttackedServer, _: Prepared) -> Answered:
        server.beside.touch()
        time.sleep(seconds)
        return Answered(server.last_line("evil:"))

    return run


def _call_large(server: AttackedServer, _: Prepared) -> Answered:
    """Calls a tool of the hostile server, whose result is large."""
    caller = attacker(server)
    reply = caller.call("execute", {"operation": "evil.x", "params": {}})
    return Answered(reply.sentence, stored_mb=12.0 if b'"handle"' in reply.body else 0.0)


def _call_for_keys(server: AttackedServer, _: Prepared) -> Answered:
    """Calls a tool of the hostile server whose results have hostile names, and asks what it returns."""
    caller = attacker(server)
    replies = [caller.call("execute", {"operation": "evil.x", "params": {}}) for _ in range(3)]
    asked = {"get_schema": {"operation": ["evil.x"]}, "discover": {"query": ["x"]}}
    told = b"".join(caller.call(tool, arguments).body for tool, arguments in asked.items())
    broken = "what the tool returns is told with its names" if HOSTILE_NAME in told else ""
    broken = broken or ("the tool is not told of" if b"evil.x" not in told else "")
    return Answered(replies[-1].sentence, broken, stored_mb=3.0)


# Subscriptions


def _listen(server: AttackedServer, place: int) -> Any:
    uris = [f"place://{place}-{number}" for number in range(1_000)]
    body = messages.request(Era.MODERN, "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
    opened = attacker(server).send(body, modern_headers("subscriptions/listen"))
    opened.settimeout(20)
    return opened


def _listen_together(server: AttackedServer, _: Prepared) -> Answered:
    with held_open() as opened:
        opened += [_listen(server, place) for place in range(8)]
        accepted = sum(b"200 OK" in one.recv(64) for one in opened)
        time.sleep(3)
    time.sleep(1)
    return Answered(f"{accepted} of 8 are accepted")


def _listen_and_leave(server: AttackedServer, _: Prepared) -> Answered:
    with held_open() as opened:
        opened += [_listen(server, place) for place in range(30)]
        accepted = sum(b"200 OK" in one.recv(64) for one in opened)
        time.sleep(2)
        before = server.cpu_seconds()
    for _ in range(35):
        last = server.cpu_seconds()
        time.sleep(1)
        if server.cpu_seconds() - last < _IDLE_CPU_SECONDS:
            break
    used = server.cpu_seconds() - before
    return Answered(f"{accepted} of 30 are accepted; {used:.1f} s of CPU after they left")


_GATEWAY = GatewayOptions()


def _upstream_attack(
    name: str,
    title: str,
    run: Callable[[AttackedServer, Prepared], Answered],
    more_seconds: float = 0.0,
    **job: Any,
) -> Attack:
    surroundings = functools.partial(_behind, **job)
    return Attack(
        name, title, run, _await_lists, more_seconds=more_seconds, options=_GATEWAY, surroundings=surroundings
    )


GATEWAY_ATTACKS: tuple[Attack, ...] = (
    _upstream_attack("listen", "gateway: 8 `subscriptions/listen` of 1,000 URIs", _listen_together),
    _upstream_attack("listen-and-leave", "gateway: 30 of them, which then leave", _listen_and_leave, more_seconds=40),
    _upstream_attack(
        "long-name", "gateway: a tool name of 20,000 characters", _open_gate(_LIST_SECONDS), names=[20_000], gate=True
    ),
    _upstream_attack(
        "longer-name", "gateway: a tool name of 60,000 characters", _open_gate(_LIST_SECONDS), names=[60_000], gate=True
    ),
    _upstream_attack("many-tools", "gateway: 50,000 tools", _open_gate(_LIST_SECONDS), tools=50_000, gate=True),
    _upstream_attack(
        "changing-tools",
        "gateway: 50,000 tools, and others whenever they change",
        _open_gate(10),
        tools=50_000,
        changes=100,
        gate=True,
    ),
    _upstream_attack(
        "many-resources", "gateway: 50,000 resources", _open_gate(_LIST_SECONDS), resources=50_000, gate=True
    ),
    _upstream_attack(
        "list-changes",
        "gateway: 20,000 notices that a list has changed",
        _open_gate(_LIST_SECONDS),
        tools=100,
        changes=20_000,
        pause=0,
        gate=True,
    ),
    _upstream_attack("large-result", "gateway: a result of 12 MB of text", _call_large, result_mb=12),
    _upstream_attack("large-rows", "gateway: a result of 12 MB of rows", _call_large, result_mb=12, rows=True),
    _upstream_attack("million-names", "gateway: results with a million names", _call_for_keys, keys="million"),
    _upstream_attack("many-names", "gateway: results with 30,000 names", _call_for_keys, keys="many"),
    _upstream_attack(
        "control-names", "gateway: results whose names have control characters", _call_for_keys, keys="control"
    ),
    _upstream_attack("sentences", "gateway: results whose names are sentences", _call_for_keys, keys="sentences"),
)
