"""Serves a server over gRPC in this process, and calls it with messages that protobuf itself writes."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import grpc
from google.protobuf import json_format
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from deltamcp import DeltaServer
from deltamcp.transports.grpc.requests import lite_messages
from deltamcp.transports.grpc.server import GrpcServer

MESSAGES = lite_messages()
_DETAILS = {
    message.DESCRIPTOR.full_name: message
    for message in (
        error_details_pb2.ErrorInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.RetryInfo,
        error_details_pb2.QuotaFailure,
        error_details_pb2.ResourceInfo,
    )
}


class GrpcRefusal(NamedTuple):
    """The status of a call that failed, with its details by their short names."""

    code: str
    text: str
    details: dict[str, Any]
    trailing: dict[str, Any]

    @property
    def reason(self) -> str:
        return str(self.details["ErrorInfo"]["reason"])


def refusal(error: grpc.aio.AioRpcError) -> GrpcRefusal:
    status = rpc_status.from_call(error)
    details = {}
    for packed in () if status is None else status.details:
        name = packed.TypeName()
        message = _DETAILS[name]()  # no other details are ever sent
        packed.Unpack(message)
        details[name.rpartition(".")[2]] = json_format.MessageToDict(message)
    trailing = dict(error.trailing_metadata() or ())
    return GrpcRefusal(error.code().name, error.details() or "", details, trailing)


def tool_request(name: str, arguments: dict[str, Any] | None = None, meta: dict[str, Any] | None = None) -> Any:
    request = MESSAGES.ToolRequest(name=name)
    if arguments is not None:
        json_format.ParseDict(arguments, request.arguments)
    if meta is not None:
        json_format.ParseDict(meta, request.meta)
    return request


def as_dict(struct: Any) -> Any:
    """A Struct as JSON, by protobuf's own conversion; integral doubles compare equal to integers."""
    return json_format.MessageToDict(struct)


class GrpcPeer:
    """A client of the services."""

    def __init__(self, channel: grpc.aio.Channel, server: GrpcServer) -> None:
        self.channel = channel
        self.server = server
        self.raw_call = channel.unary_unary("/mcplite.MCPLite/CallTool")
        """Takes and returns bytes."""
        self._call = channel.unary_unary(
            "/mcplite.MCPLite/CallTool",
            request_serializer=MESSAGES.ToolRequest.SerializeToString,
            response_deserializer=MESSAGES.ToolResponse.FromString,
        )
        self._stream = channel.unary_stream(
            "/mcplite.MCPLite/CallToolStream",
            request_serializer=MESSAGES.ToolRequest.SerializeToString,
            response_deserializer=MESSAGES.ToolResponse.FromString,
        )
        self._tools = channel.unary_unary(
            "/mcplite.MCPLite/GetTools",
            request_serializer=MESSAGES.Empty.SerializeToString,
            response_deserializer=MESSAGES.ToolsList.FromString,
        )

    def call(self, name: str, arguments: Any = None, meta: Any = None, **options: Any) -> Any:
        return self._call(tool_request(name, arguments, meta), **options)

    def stream(self, name: str, arguments: Any = None, meta: Any = None, **options: Any) -> Any:
        return self._stream(tool_request(name, arguments, meta), **options)

    async def tools(self, **options: Any) -> list[Any]:
        return list((await self._tools(MESSAGES.Empty(), **options)).tools)

    async def refused(self, name: str, arguments: Any = None, meta: Any = None, **options: Any) -> GrpcRefusal:
        try:
            response = await self.call(name, arguments, meta, **options)
        except grpc.aio.AioRpcError as error:
            return refusal(error)
        raise AssertionError(f"the call was not refused: {response}")


@contextlib.asynccontextmanager
async def serve_grpc(
    server: DeltaServer, channel_options: list[tuple[str, Any]] | None = None, **options: Any
) -> AsyncIterator[GrpcPeer]:
    """A client of a server at a free port; `options` are those of `DeltaServer.grpc`."""
    grpc_server = server.grpc(port=0, **options)
    grpc_server.announce = lambda address: None
    await grpc_server.start()
    try:
        address = f"127.0.0.1:{grpc_server.port}"
        async with grpc.aio.insecure_channel(address, options=channel_options or []) as channel:
            yield GrpcPeer(channel, grpc_server)
    finally:
        await grpc_server.stop()
