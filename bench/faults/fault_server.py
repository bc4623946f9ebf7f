"""A server that faults are tried on: its process, calls in both eras, and what its tools tell."""

import json
import time
from collections.abc import Callable
from typing import Any

from bench import messages
from bench.hostile.attacked_server import HttpCaller, HttpReply, OtherCallerProcess
from bench.server_process import HttpServerProcess
from deltamcp.values import Era

PACKAGE = "bench.faults.servers"
SETTLE_SECONDS = 10.0


class FaultServer(HttpServerProcess):
    """A server process behind a port, and a caller of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "faults", package=PACKAGE)
        self.name = name
        self.process = self.server.process
        self.caller = HttpCaller(self.port, seconds=20)

    def __enter__(self) -> "FaultServer":
        super().__enter__()
        self.call(Era.MODERN, "add", {"a": 2, "b": 3})
        self.call(Era.HANDSHAKE, "add", {"a": 2, "b": 3})
        return self

    def handshake(self) -> str:
        """Opens a session, on connections of its own: a server may close one that it was idle on for some seconds."""
        session = self.caller.open_session().session
        if session is None:
            raise RuntimeError(f"{self.name} opens no session")
        headers = messages.headers(Era.HANDSHAKE, "notifications/initialized", session=session)
        self.caller.post(messages.INITIALIZED, headers)
        return session

    def headers(self, era: Era, method: str = "tools/call", name: str | None = None) -> dict[str, str]:
        """The headers of a request; in the handshake era those of a new session."""
        return messages.headers(era, method, name, self.handshake() if era is Era.HANDSHAKE else None)

    def call(self, era: Era, tool: str, arguments: dict[str, Any]) -> HttpReply:
        return self.caller.post(messages.call(era, tool, arguments), self.headers(era, name=tool))

    def state(self) -> dict[str, int]:
        """What the tool `state` tells."""
        reply = self.call(Era.MODERN, "state", {})
        told: dict[str, int] = json.loads(messages.call_text(reply.body))
        return told

    def other_caller(self) -> OtherCallerProcess:
        """Another caller, who calls `add` all the time."""
        return OtherCallerProcess(
            self.port, messages.call(Era.MODERN), messages.headers(Era.MODERN, "tools/call", "add")
        )

    @property
    def lives(self) -> bool:
        """Whether the process runs and answers."""
        if self.process.poll() is not None:
            return False
        try:
            return messages.call_text(self.call(Era.MODERN, "add", {"a": 2, "b": 3}).body) == "5"
        except (ValueError, OSError):
            return False


def comes_true(condition: Callable[[], bool], seconds: float = SETTLE_SECONDS) -> bool:
    """Whether something becomes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
