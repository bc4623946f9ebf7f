"""The messages of gRPC calls, by shipped descriptors: counted before they are decoded, by accounts in turn.

They are in a pool of their own, so that a program can also use code that it generated from the specification's file.
"""

import asyncio
import contextlib
import functools
import importlib.resources
from collections.abc import AsyncIterable, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, message_factory, struct_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from deltamcp.catalog.items.operation import Operation
from deltamcp.errors import Fault
from deltamcp.limits import Limits
from deltamcp.runtime.quota import LoopTurns, Quota
from deltamcp.runtime.threads import Threads
from deltamcp.values import JSON, Failure
from deltamcp.wire.message_bounds import too_many_values
from deltamcp.wire.protobuf import (
    Shape,
    StructError,
    TooManyError,
    TooManyFieldsError,
    WireError,
    count_fields,
    read_struct,
    restore_integers,
    tag,
)

SERVICE = "mcplite.MCPLite"
PROMPTS_SERVICE = "mcplite.ext.Prompts"
DETAILS_KEY = "grpc-status-details-bin"
"""The trailing metadata that has the `google.rpc.Status` of a call that failed."""


class LiteMessages:
    """The classes of the messages. Their fields are those of `wire/mcplite.proto` and `wire/mcplite_ext.proto`."""

    def __init__(self) -> None:
        self.pool: DescriptorPool = DescriptorPool()
        self.pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
        for file in read_descriptors().file:
            self.pool.AddSerializedFile(file.SerializeToString())
        self.Empty: Any = self._find("mcplite.Empty")
        self.ToolsList: Any = self._find("mcplite.ToolsList")
        self.ToolRequest: Any = self._find("mcplite.ToolRequest")
        self.ToolResponse: Any = self._find("mcplite.ToolResponse")
        self.PromptsList: Any = self._find("mcplite.ext.PromptsList")

    def _find(self, name: str) -> Any:
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(name))


@functools.cache
def lite_messages() -> LiteMessages:
    """Returns the classes, which are made once."""
    return LiteMessages()


def read_descriptors() -> descriptor_pb2.FileDescriptorSet:
    """Returns what the package ships: both files, without the one that they import."""
    data = importlib.resources.files("deltamcp.wire").joinpath("mcplite.binpb").read_bytes()
    return descriptor_pb2.FileDescriptorSet.FromString(data)


def add_file(pool: DescriptorPool, message: type[Message]) -> None:
    """Makes the file of a generated message known to a pool, for reflection."""
    pool.AddSerializedFile(message.DESCRIPTOR.file.serialized_pb)


_MAX_BYTES_AT_ONCE = 16 * 1024
"""A larger message is decoded in a thread, because each may take 100 ms and many may arrive at once."""
_MAX_BYTES_WITHOUT_TURN = 1024
"""A larger message, which may take 10 ms, is decoded alone in an iteration of the event loop."""
_FIELDS_PER_VALUE = 2
"""A value, or a name with its value, is a field of a message that has one field or two."""
_MORE_FIELDS = 16
"""The fields of a request beside its values, with room for those of later versions."""
_COPIES = 2
"""gRPC has what it receives twice, in pieces and as a whole."""
_BYTES_PER_FIELD = 50
"""The memory of a field once it is decoded."""
_MALFORMED = Failure(Fault.PARSE, "The message is no ToolRequest of MCP-lite, or is nested too deeply.")
_TOO_MANY = Failure(Fault.OVERLOADED, "Too many large requests of this client are in progress; try again later.")

_VALUE: Shape = {}
_STRUCT: Shape = {tag(1): {tag(2): _VALUE}}
_VALUE.update({tag(5): _STRUCT, tag(6): {tag(1): _VALUE}})
_TOOL_REQUEST: Shape = {tag(2): _STRUCT, tag(16): _STRUCT}


class ReceivedMessage:
    """The message of one call, and what it holds of the quotas."""

    def __init__(self, account: str) -> None:
        self.account = account
        self.data: bytes = b""
        self._held: list[tuple[Quota, int]] = []

    def hold(self, quota: Quota, size: int) -> None:
        """Has `release` give back what the account took of a quota."""
        self._held.append((quota, size))

    def release(self) -> None:
        while self._held:
            quota, size = self._held.pop()
            quota.give_back(self.account, size)

    def take_data(self) -> bytes:
        """Returns the bytes, which take memory no longer once they are decoded."""
        data, self.data = self.data, b""
        return data


class GrpcRequests:
    """Reads the requests of one server; what they take counts for their accounts."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._decoders = Threads(1)
        self._turns = LoopTurns(1)
        self._undecoded = Quota(limits.body_bytes, limits.account_share)
        self._decoded = Quota(limits.body_bytes // 2, limits.account_share)
        self._max_fields = _FIELDS_PER_VALUE * limits.values + _MORE_FIELDS

    async def receive(self, requests: AsyncIterable[bytes], message: ReceivedMessage) -> Failure | None:
        """Waits for the bytes of a call's message; returns why there are none. The caller releases the message.

        Nobody knows how many will come, so that a call counts as the largest message until they are there. An account
        receives so many at once, and its other calls wait: gRPC holds what has come of each.
        """
        seconds, account = self._limits.body_seconds, message.account
        size = min(_COPIES * self._limits.message_bytes, self._undecoded.share)
        if not await self._undecoded.take_in_turn(account, size, seconds):
            return _TOO_MANY
        kept = 0
        try:
            data = await read_message(requests, seconds)
            if isinstance(data, Failure):
                return data
            kept = min(len(data), size) if len(data) > _MAX_BYTES_AT_ONCE else 0
            message.data = data
            if kept:
                message.hold(self._undecoded, kept)
        finally:
            self._undecoded.give_back(account, size - kept)
        return None

    async def read_call(
        self, message: ReceivedMessage, operations: Mapping[str, Operation]
    ) -> dict[str, JSON] | Failure:
        """Returns the parameters of the `tools/call` that a `ToolRequest` stands for.

        Integers that came as strings are integers where the schema of one of the `operations` asks for them.
        """
        data = message.take_data()
        if len(data) <= _MAX_BYTES_AT_ONCE:
            if len(data) > _MAX_BYTES_WITHOUT_TURN:
                await self._turns.take(message.account)
            return _decode(data, operations, self._limits)
        counted = await self._decoders.run(message.account, self._count, {"data": data})
        if isinstance(counted, Failure):
            return counted
        size = min(len(data) + _BYTES_PER_FIELD * counted, self._decoded.share)
        if not await self._decoded.take_in_turn(message.account, size, self._limits.body_seconds):
            return _TOO_MANY
        arguments = {"data": data, "operations": operations, "limits": self._limits}
        try:
            found: dict[str, JSON] | Failure = await self._decoders.run(message.account, _decode, arguments)
        finally:
            message.release()
            message.hold(self._decoded, size)
        return found

    def _count(self, data: bytes) -> int | Failure:
        try:
            return count_fields(data, _TOOL_REQUEST, self._max_fields)
        except TooManyFieldsError:
            error = too_many_values(self._limits)
            return Failure(error.fault, str(error))
        except WireError:
            return _MALFORMED


def _decode(data: bytes, operations: Mapping[str, Operation], limits: Limits) -> dict[str, JSON] | Failure:
    try:
        message: Any = lite_messages().ToolRequest.FromString(data)
    except DecodeError:
        return _MALFORMED
    params: dict[str, JSON] = {"name": message.name, "arguments": {}}
    try:
        if message.HasField("arguments"):
            params["arguments"] = read_struct(message.arguments, limits.values)
        if message.HasField("meta"):
            params["_meta"] = read_struct(message.meta, limits.values)
    except TooManyError as error:
        return Failure(Fault.TOO_LARGE, str(error))
    except StructError as error:
        where = "/_meta" if params["arguments"] else "/arguments"
        problem = {"pointer": where, "message": str(error), "keyword": "type"}
        return Failure(Fault.INVALID_PARAMS, str(error), {"errors": [problem]})
    operation = operations.get(message.name)
    if operation is not None:
        params["arguments"] = restore_integers(params["arguments"], operation.tool["inputSchema"])
    return params


async def read_message(requests: AsyncIterable[bytes], seconds: float) -> bytes | Failure:
    """Returns the message of a call that has one."""
    # gRPC's generator has its last message and is in a cycle: unclosed, it would leave that to the garbage collector.
    messages: Any = aiter(requests)
    try:
        async with asyncio.timeout(seconds), contextlib.aclosing(messages):
            async for message in messages:
                return bytes(message)
    except TimeoutError:
        return Failure(Fault.TOO_SLOW, f"The message of the request has not come within {seconds:g} s.")
    return Failure(Fault.INVALID_REQUEST, "The request has no message.")
