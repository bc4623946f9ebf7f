"""A transport for the official SDK's client that ends in a server of this same process."""

import contextlib
from collections.abc import AsyncIterator

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from deltamcp import DeltaServer
from tests.support.raw_link import RawLink, raw_link

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


@contextlib.asynccontextmanager
async def sdk_streams(server: DeltaServer) -> AsyncIterator[Streams]:
    """The client's two streams, joined to a connection of its own."""
    to_client, client_reads = anyio.create_memory_object_stream[Incoming](100)
    client_writes, from_client = anyio.create_memory_object_stream[SessionMessage](100)
    async with raw_link(server.engine) as link, anyio.create_task_group() as pumps:
        pumps.start_soon(_answers, link, to_client)
        pumps.start_soon(_questions, from_client, link)
        async with to_client, client_reads, client_writes, from_client:
            try:
                yield client_reads, client_writes
            finally:
                pumps.cancel_scope.cancel()


async def _answers(link: RawLink, to_client: MemoryObjectSendStream[Incoming]) -> None:
    while True:
        message = jsonrpc_message_adapter.validate_json(await link.receive(), by_name=False)
        await to_client.send(SessionMessage(message))


async def _questions(from_client: MemoryObjectReceiveStream[SessionMessage], link: RawLink) -> None:
    async for sent in from_client:
        link.send(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
