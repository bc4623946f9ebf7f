"""The messages of MCP-lite over gRPC, from the descriptors that the package ships; there is no generated code.

They are in a pool of their own, so that a program can also use code that it generated from the specification's file.
"""

import functools
import importlib.resources
from typing import Any

from google.protobuf import descriptor_pb2, message_factory, struct_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

SERVICE = "mcplite.MCPLite"
PROMPTS_SERVICE = "mcplite.ext.Prompts"
DETAILS_KEY = "grpc-status-details-bin"
"""The trailing metadata that has the `google.rpc.Status` of a call that failed."""


class LiteMessages:
    """The classes of the messages. Their fields are those of `wire/mcplite.proto` and `wire/mcplite_ext.proto`."""

    def __init__(self) -> None:
        self.pool = DescriptorPool()
        self.pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
        for file in read_descriptors().file:
            self.pool.AddSerializedFile(file.SerializeToString())
        self.Empty = self._find("mcplite.Empty")
        self.ToolsList = self._find("mcplite.ToolsList")
        self.ToolRequest = self._find("mcplite.ToolRequest")
        self.ToolResponse = self._find("mcplite.ToolResponse")
        self.PromptsList = self._find("mcplite.ext.PromptsList")

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
