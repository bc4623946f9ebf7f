"""The judge: MCP's first era over a process's pipes with nothing between, so that what a server said can be compared.

It shares no code with Delta-MCP, types nothing and keeps every field. By hand:

    python tests/interop/raw.py WORDS...                     prints what `tools/list` says, all pages
    python tests/interop/raw.py WORDS... -- TOOL ARGUMENTS   prints the whole response to one call
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

SECONDS = 60
"""How long one answer may take; the slowest server here needs 10 s to start on a busy machine."""

REVISION = "2025-11-25"


class Raw:
    """One process that talks; `info` is who it says it is, `seconds` how long it has for an answer."""

    def __init__(self, process: "subprocess.Popen[bytes]", seconds: float) -> None:
        self._process = process
        self.seconds = seconds
        self._ids = 0
        self.info: dict[str, Any] = {}
        self._heard: queue.Queue[bytes] = queue.Queue()
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole response to a request; what else the server says meanwhile is not listened to."""
        response: dict[str, Any] = json.loads(self.ask_line(method, **params))
        return response

    def ask_line(self, method: str, **params: Any) -> bytes:
        """The response to a request as the server wrote it."""
        self._ids += 1
        self.tell(method, id=self._ids, params=params)
        while True:
            line = self._heard.get(timeout=self.seconds)
            if not line:
                raise EOFError(f"the server ended before it answered {method}")
            with contextlib.suppress(json.JSONDecodeError):
                message: Any = json.loads(line)
                if isinstance(message, dict) and message.get("id") == self._ids and "method" not in message:
                    return line

    def tell(self, method: str, **rest: Any) -> None:
        assert self._process.stdin is not None
        message = {"jsonrpc": "2.0", "method": method, **rest}
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def handshake(self) -> None:
        about = {"name": "raw", "version": "1"}
        answer = self.ask("initialize", protocolVersion=REVISION, capabilities={}, clientInfo=about)
        self.info = answer["result"]["serverInfo"]
        self.tell("notifications/initialized")

    def tools(self) -> list[Any]:
        """Every tool as it came, from all pages."""
        found: list[Any] = []
        page: dict[str, Any] = {}
        while True:
            result = self.ask("tools/list", **page)["result"]
            found += result["tools"]
            if not result.get("nextCursor"):
                return found
            page = {"cursor": result["nextCursor"]}

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._heard.put(line)
        self._heard.put(b"")


@contextlib.contextmanager
def started(
    words: list[str],
    environment: Mapping[str, str],
    folder: Path | None = None,
    errors: IO[bytes] | int = subprocess.DEVNULL,
    seconds: float = SECONDS,
) -> Iterator[Raw]:
    """A server after the handshake. It and all it started is killed at the end."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, stdin=pipe, stdout=pipe, stderr=errors, env=environment, cwd=folder, start_new_session=True
    ) as process:
        raw = Raw(process, seconds)
        try:
            raw.handshake()
            yield raw
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            raw.listener.join()


def main() -> None:
    words, call = sys.argv[1:], []
    if "--" in words:
        words, call = words[: words.index("--")], words[words.index("--") + 1 :]
    with started(words, os.environ) as raw:
        said = raw.ask("tools/call", name=call[0], arguments=json.loads(call[1])) if call else {"tools": raw.tools()}
        print(json.dumps(said, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
