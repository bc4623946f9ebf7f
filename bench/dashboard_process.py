"""A gateway with a dashboard as users start it: a process with a terminal, which shows how to log in."""

import asyncio
import contextlib
import http.client
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from bench import messages
from bench.peers import ROOT
from bench.ports import find_free_port
from deltamcp.dashboard.gateway_socket import RemoteGateway, find_gateways
from deltamcp.values import Era

_START_SECONDS = 30.0


class PageReply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class DashboardProcess:
    """A gateway in a process of its own, what its terminal says, and requests to it and its dashboard."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path, terminal: int, ports: tuple[int, int]) -> None:
        self.process = process
        self.folder = folder
        self.mcp_port, self.port = ports
        self.origin = f"http://127.0.0.1:{self.port}"
        self.said = ""
        self._terminal = terminal
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while part := os.read(self._terminal, 65536):
                self.said += part.decode(errors="replace")

    @property
    def sockets(self) -> Path:
        return self.folder / "state" / "delta-mcp" / "gateways"

    def cpu_seconds(self) -> float:
        """Returns its user and system time so far."""
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def codes(self) -> list[str]:
        """Returns the codes that the terminal has shown, the newest last."""
        return re.findall(r"login\?code=([\w-]+)", self.said)

    def await_code(self, count: int = 1) -> str:
        """
        Raises:
            RuntimeError: the terminal shows none.
        """
        ends = time.monotonic() + _START_SECONDS
        while time.monotonic() < ends:
            if len(found := self.codes()) >= count:
                return found[-1]
            time.sleep(0.05)
        raise RuntimeError(f"no code is shown: {self.said[-2000:]}")

    def ask(self, name: str, **arguments: Any) -> Any:
        """Asks the gateway by the socket of its user."""

        async def ask() -> Any:
            (gateway,) = await find_gateways(self.sockets)
            return await gateway.ask(name, arguments)

        return asyncio.run(ask())

    @property
    def id(self) -> str:
        return RemoteGateway(next(self.sockets.glob("*.sock"))).id

    def request(self, method: str, path: str, fields: dict[str, str] | None = None, **headers: str) -> PageReply:
        sent = {"Host": f"127.0.0.1:{self.port}", **{name.replace("_", "-"): text for name, text in headers.items()}}
        body = None
        if fields is not None:
            body = urlencode(fields)
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, sent)
            reply = connection.getresponse()
            return PageReply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
        finally:
            connection.close()

    def log_in(self) -> str:
        """Returns the header with the cookie of a browser that has used the newest code."""
        code = self.await_code()
        reply = self.request("GET", f"/login?code={code}")
        if "set-cookie" not in reply.headers:
            raise RuntimeError("the newest code lets nobody in")
        return reply.headers["set-cookie"].partition(";")[0]

    def call(self, name: str, arguments: dict[str, Any]) -> bytes:
        """Calls a tool by MCP, as another caller of the gateway."""
        connection = http.client.HTTPConnection("127.0.0.1", self.mcp_port, timeout=20)
        try:
            headers = messages.headers(Era.MODERN, "tools/call", name)
            connection.request("POST", "/mcp", messages.call(Era.MODERN, name, arguments), headers)
            return connection.getresponse().read()
        finally:
            connection.close()

    def await_(self, condition: Any) -> None:
        """
        Raises:
            RuntimeError: it does not become true.
        """
        ends = time.monotonic() + _START_SECONDS
        while not condition():
            if time.monotonic() > ends:
                raise RuntimeError(f"the gateway does not become ready: {self.said[-2000:]}")
            time.sleep(0.1)

    def await_tools(self) -> None:
        """Waits until the gateway has the lists of all servers."""
        self.await_(lambda: any(self.sockets.glob("*.sock")))
        self.await_(lambda: all(row["tools"] for row in self.ask("servers")))


@contextlib.contextmanager
def dashboard_process(folder: Path, words: Sequence[str], has_pages: bool = True) -> Iterator[DashboardProcess]:
    """Starts a gateway, with folders for what it keeps in one; without pages only its socket answers."""
    ports = find_free_port(), find_free_port()
    terminal, end = pty.openpty()
    folders = {f"XDG_{one}_HOME": str(folder / one.lower()) for one in ("STATE", "CACHE", "CONFIG")}
    pages = ["--dashboard", f"127.0.0.1:{ports[1]}", "--dashboard-write"] if has_pages else []
    process = subprocess.Popen(
        [sys.executable, "-m", "deltamcp", "gateway", *words, "--http", f"127.0.0.1:{ports[0]}", *pages],
        cwd=ROOT,
        env={**os.environ, **folders},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=end,
    )
    os.close(end)
    try:
        yield DashboardProcess(process, folder, terminal, ports)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with contextlib.suppress(OSError):
            os.close(terminal)
