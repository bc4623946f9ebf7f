"""The socket of the user's folder by which other programs of the user ask a gateway that runs, and how they find it.

A request is one line of JSON, `{"ask": "servers", "arguments": {}}`, and so is its answer, `{"answer": ...}` or
`{"error": "..."}`; then the connection closes. The folder is the user's alone, and so is each socket.
"""

import asyncio
import contextlib
import os
import socket
import stat
import struct
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from deltamcp.errors import ConfigurationError, DeltaError, UnreachableError, UsageError
from deltamcp.runtime.files import make_own_folder, user_folder
from deltamcp.values import JSON

if TYPE_CHECKING:
    from deltamcp.dashboard.api import GatewayApi

_MAX_REQUEST_BYTES = 1024 * 1024
_MAX_ANSWER_BYTES = 64 * 1024 * 1024
_MAX_PATH_BYTES = 100
"""A socket's path has 104 bytes on macOS and 108 on Linux."""
_CONNECT_SECONDS = 2.0
_ANSWER_SECONDS = 120.0
_MAX_CONNECTIONS = 64
_ROOT = 0


def sockets_folder() -> Path:
    """
    Raises:
        ConfigurationError: the user has no home.
    """
    return user_folder("state") / "gateways"


@contextlib.asynccontextmanager
async def gateway_socket(make_api: "Callable[[], GatewayApi]", folder: Path | None = None) -> AsyncIterator[None]:
    """Answers what programs of the user ask, until the block ends. Where there can be no socket, nobody can ask.

    Args:
        make_api: Returns what answers; it is called when somebody first asks, and imports what that needs.
        folder: Where the socket is; in the user's folder for state by default.
    """
    listener: socket.socket | None = None
    path = Path()
    if hasattr(asyncio, "start_unix_server"):  # Windows has none
        with contextlib.suppress(OSError, ConfigurationError):
            folder = sockets_folder() if folder is None else folder
            make_own_folder(folder)
            path = folder / f"{os.getpid()}.sock"
            listener = _bind(path)
    if listener is None:
        yield
        return
    server = _SocketServer(make_api)
    listening = await asyncio.start_unix_server(server.serve, sock=listener, limit=_MAX_REQUEST_BYTES)
    try:
        yield
    finally:
        listening.close()
        server.close()
        path.unlink(missing_ok=True)


def _bind(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)  # of a process of this number that was killed
        with _short(path) as address:
            listener.bind(address)
        path.chmod(0o600)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def _short(path: Path) -> Any:
    """Gives an address of a socket that is short enough, also where the user's folder is deep."""
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES or sys.platform != "linux":
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


class _SocketServer:
    def __init__(self, make_api: "Callable[[], GatewayApi]") -> None:
        self._make_api = make_api
        self._serving: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "each connection has a task"
        self._serving.add(task)
        try:
            if len(self._serving) <= _MAX_CONNECTIONS and _is_own_user(writer.get_extra_info("socket")):
                line = await reader.readline()
                if line.endswith(b"\n"):
                    writer.write(await self._answer(line) + b"\n")
                    await writer.drain()
        except (OSError, ValueError, asyncio.CancelledError):
            pass  # the other program went, sent too much, or the gateway ends
        finally:
            self._serving.discard(task)
            writer.close()

    async def _answer(self, line: bytes) -> bytes:
        try:
            request = msgspec.json.decode(line)
            name, arguments = request["ask"], request.get("arguments", {})
            answer = await self._make_api().ask(str(name), arguments)
        except DeltaError as error:
            return msgspec.json.encode({"error": str(error)})
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            return msgspec.json.encode({"error": "A request is a line of JSON with an ask and its arguments."})
        return msgspec.json.encode({"answer": answer})

    def close(self) -> None:
        for task in self._serving:
            task.cancel()


def _is_own_user(connected: Any) -> bool:
    """Whether the program at the other end is of this user, or of root, who can read everything anyway."""
    if sys.platform != "linux":  # elsewhere the folder alone keeps others out
        return True
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1] in (os.geteuid(), _ROOT)


class RemoteGateway:
    """A gateway in another process. It implements `AskedGateway`."""

    def __init__(self, path: Path) -> None:
        self.id: str = path.stem
        self._path = path

    async def ask(self, name: str, arguments: Mapping[str, JSON] = MappingProxyType({})) -> Any:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                with _short(self._path) as address:
                    reader, writer = await asyncio.open_unix_connection(address, limit=_MAX_ANSWER_BYTES)
        except (OSError, TimeoutError):
            raise UnreachableError("The gateway has ended.") from None
        try:
            writer.write(msgspec.json.encode({"ask": name, "arguments": dict(arguments)}) + b"\n")
            await writer.drain()
            async with asyncio.timeout(_ANSWER_SECONDS):
                line = await reader.readline()
        except (OSError, ValueError, TimeoutError):
            raise UnreachableError("The gateway does not answer.") from None
        finally:
            writer.close()
        if not line:
            raise UnreachableError("The gateway has ended.")
        reply = msgspec.json.decode(line)
        if "error" in reply:
            raise UsageError(reply["error"])
        return reply["answer"]


async def find_gateways(folder: Path | None = None) -> list[RemoteGateway]:
    """Returns the gateways of this user that run, by the numbers of their processes; forgets those that were killed.

    Raises:
        ConfigurationError: this system has no such sockets, or the folder is not the user's alone.
    """
    if not hasattr(asyncio, "open_unix_connection"):
        raise ConfigurationError("Gateways are found by Unix sockets, which this system does not have.")
    folder = sockets_folder() if folder is None else folder
    if not folder.is_dir():
        return []
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise ConfigurationError(f"Others may write to {folder}; delete it, and start the gateways again.")
    found = []
    for path in sorted(folder.glob("*.sock"), key=lambda one: (len(one.name), one.name)):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            continue
        if await _is_alive(path):
            found.append(RemoteGateway(path))
        else:
            path.unlink(missing_ok=True)
    return found


async def _is_alive(path: Path) -> bool:
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            with _short(path) as address:
                _, writer = await asyncio.open_unix_connection(address)
    except ConnectionRefusedError:
        return False
    except (OSError, TimeoutError):
        return True
    writer.close()
    return True
