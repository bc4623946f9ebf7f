"""The messages that a replica sends to all others, and that each ignores unless it has what they are about."""

from typing import TypeAlias

import msgspec
from msgspec import Struct

from deltamcp.runtime.change_hub import Change, OwnChange
from deltamcp.values import Kind, RequestId


class ResponseStored(Struct, frozen=True, tag="response"):
    """The client has answered a request that a replica sent in a session; the answer is in the store."""

    session: str
    request: str


class RequestCancelled(Struct, frozen=True, tag="cancelled"):
    """The client has cancelled a request of a session."""

    session: str
    request: RequestId


class SessionChanged(Struct, frozen=True, tag="changed"):
    """The record of a session has changed."""

    session: str


class SessionEnded(Struct, frozen=True, tag="ended"):
    """The client has ended a session."""

    session: str


class StreamMoved(Struct, frozen=True, tag="moved"):
    """The client has opened a new stream for messages outside requests; those with a lower number end."""

    session: str
    number: int


class ChangesMade(Struct, frozen=True, tag="changes"):
    """Lists or resources have changed. The log has this message under its number."""

    number: int
    kinds: list[Kind]
    uris: list[str]
    everything: bool = False
    """Whether there were too many to list."""
    own_kinds: list[tuple[str, Kind]] = []
    """Lists that have changed for one principal, each after its owner."""
    own_uris: list[tuple[str, str]] = []

    @property
    def changes(self) -> list[Change]:
        own_kinds, own_uris = (OwnChange(*one) for one in self.own_kinds), (OwnChange(*one) for one in self.own_uris)
        return [*self.kinds, *self.uris, *own_kinds, *own_uris]


class PromiseChanged(Struct, frozen=True, tag="promise"):
    """The record of a promise has changed."""

    key: str
    revision: int


SessionMessage: TypeAlias = ResponseStored | RequestCancelled | SessionChanged | SessionEnded | StreamMoved
ReplicaMessage: TypeAlias = SessionMessage | ChangesMade | PromiseChanged

# Not MessagePack, whose integers have 64 bits: the id of a request may have more.
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[ReplicaMessage] = msgspec.json.Decoder(ReplicaMessage)


def encode(message: ReplicaMessage) -> bytes:
    return _encoder.encode(message)


def decode(message: bytes) -> ReplicaMessage | None:
    """Returns a message; None if it is of another version of this library."""
    try:
        return _decoder.decode(message)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
