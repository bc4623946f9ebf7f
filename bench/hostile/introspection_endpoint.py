"""An authorization server that only answers about tokens, of the standard library, run by its path: PORT.

Every token that begins with `good` is active, and no other.
"""

import asyncio
import json
import sys
from urllib.parse import parse_qs


class Introspection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].lower()
            at = head.find(b"content-length:")
            size = int(head[at + 15 :].split(b"\r\n")[0]) if at >= 0 else 0
            if len(self._received) < end + 4 + size:
                return
            body = self._received[end + 4 : end + 4 + size].decode()
            self._received = self._received[end + 4 + size :]
            self._transport.write(answer(parse_qs(body).get("token", [""])[0]))


def answer(token: str) -> bytes:
    said: dict[str, object] = {"active": False}
    if token.startswith("good"):
        said = {"active": True, "sub": "ann", "client_id": "bench", "exp": 4_000_000_000}
    body = json.dumps(said).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Introspection, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
