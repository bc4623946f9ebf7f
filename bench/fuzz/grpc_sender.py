"""Sends cases to a gRPC server: messages over a channel, bytes over sockets; each is answered or closed in time."""

import asyncio
import contextlib
import itertools

import grpc

from bench.fuzz.grpc_cases import METHODS, GrpcCase, make_connection_bytes, make_message_case
from bench.fuzz.sender import QUIET_SECONDS, send_each
from bench.fuzz.verdict import FuzzTally

_WRONG = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED)
"""What no mutated message may be answered with."""


class GrpcSender:
    """Sends cases by their numbers, many at once."""

    def __init__(self, port: int, seed: int, tally: FuzzTally, token: str) -> None:
        self._port = port
        self._seed = seed
        self._tally = tally
        self._token = token

    async def send_messages(self, numbers: range) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self._port}", options=options) as channel:
            await send_each(self._tally, "grpc", numbers, lambda number: self._send_message(channel, number))

    async def send_connections(self, numbers: range) -> None:
        await send_each(self._tally, "frames", numbers, self._send_bytes)

    async def _send_message(self, channel: grpc.aio.Channel, number: int) -> None:
        case = make_message_case(self._seed, number)
        try:
            await self._call(channel, case)
        except grpc.aio.AioRpcError as error:
            self._tally.count(error.code().name)
            if error.code() in _WRONG:
                self._tally.report("grpc", number, f"{error.code().name} {error.details()[:200]}")
        else:
            self._tally.count("OK")

    async def _call(self, channel: grpc.aio.Channel, case: GrpcCase) -> None:
        metadata = (*case.metadata, ("authorization", f"Bearer {self._token}"))
        if case.method == METHODS[2]:
            async for _ in channel.unary_stream(case.method)(case.message, metadata=metadata):
                pass
        else:
            await channel.unary_unary(case.method)(case.message, metadata=metadata)

    async def _send_bytes(self, number: int) -> None:
        """Sends the bytes of a connection, and reads until it is closed; a client that hears nothing ends it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        read = 0
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(make_connection_bytes(self._seed, number))
                await writer.drain()
            for is_last in itertools.chain((False,), itertools.repeat(True)):
                try:
                    async with asyncio.timeout(None if is_last else QUIET_SECONDS):
                        while data := await reader.read(1 << 16):
                            read += len(data)
                except TimeoutError:
                    with contextlib.suppress(OSError):
                        writer.write_eof()
                except ConnectionError:
                    break
                else:
                    break
            self._tally.count("answered" if read > 50 else "closed")
        finally:
            writer.close()
