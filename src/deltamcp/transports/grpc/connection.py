"""One connection of a gRPC client, and the one to the grpcio package that its frames are passed on by."""

import abc
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from deltamcp.limits import Limits
from deltamcp.runtime.quota import LoopShares, LoopTurns, Quota
from deltamcp.wire.http2_frames import (
    MAX_WINDOW,
    PREFACE,
    ClientFrames,
    ErrorCode,
    FrameType,
    Http2Error,
    Http2Frame,
    ServerFrames,
    write_frame,
    write_goaway,
    write_headers,
    write_reset,
    write_window_update,
)

_READ_BYTES = 16 * 1024
"""What is read of a connection at once; it may have 1,800 frames."""
_UNSENT_BYTES = 32 * 1024
"""What may wait for a peer to read it, before nothing more is read for it."""
_COST: dict[int, int] = {FrameType.HEADERS: 16, FrameType.RST_STREAM: 16}
"""How much more than other frames it costs gRPC, and what is behind it, to begin a call and to end it."""
_COST_AT_ONCE = 256
"""What all connections of an address pass on in an iteration of the event loop without waiting for a turn."""
_TURN_COST = 256
_TURNS = 4
"""The connections that pass on more in one iteration: 64 calls, in some 10 ms."""
_PENDING_CALLS = 256
"""The calls that wait in gRPC's queue, which all clients share, in some 100 ms at most."""
_RESET_SECONDS = 1.0
"""How long a call that has ended before it was served counts as one that waits: gRPC may still have it in its queue."""
_LINGER_SECONDS = 1.0
_MAX_DROPPED_BYTES = 256 * 1024
"""What a client that has to leave may still send; it is dropped."""
CALL_KEY = "x-relayed-stream"
"""The metadata in which the service finds a call's stream; what a client sends under this name comes before it."""


class GrpcQuotas:
    """What the connections of one gRPC server share: what each address may have, and the buffer that all read into."""

    def __init__(self, limits: Limits, connections: int) -> None:
        share = limits.account_share
        self.buffer: memoryview[int] = memoryview(bytearray(_READ_BYTES))
        """Its bytes are copied before another connection of the same event loop reads; asyncio's TLS needs slices."""
        self.connections: Quota = Quota(connections, share)
        self.pending: Quota = Quota(_PENDING_CALLS, share)
        """Calls that gRPC was passed and has not given to the service; further ones wait."""
        self.bodies: Quota = Quota(limits.body_bytes, share)
        """Bytes of the header sections and messages of open calls; further ones end their call."""
        self.at_once: LoopShares = LoopShares(_COST_AT_ONCE)
        self.turns: LoopTurns = LoopTurns(_TURNS)


class _Side(asyncio.BufferedProtocol, abc.ABC):
    """One side of a connection."""

    transport: Any = None

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(_UNSENT_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.receive(bytes(self._buffer[:nbytes]))

    @abc.abstractmethod
    def receive(self, data: bytes) -> None:
        """Takes what its peer sent."""


class GrpcServerConnection(_Side):
    """The side to gRPC: passes on what gRPC sends, and tells which calls have ended."""

    def __init__(self, buffer: memoryview, client: "GrpcClientConnection", on_lost: Callable[[], object]) -> None:
        super().__init__(buffer)
        self._client = client
        self._on_lost = on_lost
        self._frames = ServerFrames()
        self._own_frames = b""
        """Frames of the relay that wait until gRPC has ended one of its own."""
        self._window = 0
        """What the client may send again, as it will be told in one frame once it reads: it may send without end."""
        self.written: asyncio.Future[None] | None = None
        """Done once gRPC has read what was written; None if it has."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.write(PREFACE)

    def receive(self, data: bytes) -> None:
        ended, place = self._frames.feed(data)
        for stream in ended:
            self._client.end_call(stream)
        if place is not None:
            data = data[:place] + self._take_own() + data[place:]
        self._client.transport.write(data)

    @property
    def is_between_frames(self) -> bool:
        return self._frames.is_between

    def send_own(self, frame: bytes) -> None:
        """Sends a frame of the relay to the client, between two of gRPC's."""
        if self.is_between_frames:
            self._client.transport.write(frame)
        else:
            self._own_frames += frame

    def open_window(self, size: int) -> None:
        """Lets the client send so many bytes more on its connection, once what waits is sent."""
        self._window = min(self._window + size, MAX_WINDOW)

    def send_waiting(self) -> None:
        """Sends the frames of the relay that wait, unless gRPC has begun one of its own; they come behind that."""
        if self.is_between_frames and (frames := self._take_own()):
            self._client.transport.write(frames)

    def _take_own(self) -> bytes:
        frames, window = self._own_frames, self._window
        self._own_frames, self._window = b"", 0
        return frames + (write_window_update(0, window) if window else b"")

    def pause_writing(self) -> None:
        self.written = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self.written is not None:
            self.written.set_result(None)
            self.written = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()
        self.resume_writing()
        self._client.close_after_grpc()


class GrpcClientConnection(_Side):
    """The side to a client: passes on whole frames, as far as its address may have more calls and more bytes."""

    def __init__(
        self,
        host: str,
        account: str | None,
        limits: Limits,
        quotas: GrpcQuotas,
        connect: Callable[["GrpcClientConnection"], Awaitable[GrpcServerConnection]],
        on_lost: Callable[["GrpcClientConnection"], None],
    ) -> None:
        """
        Args:
            host: the address of the client.
            account: what the client counts as; None for a proxy, whose clients count by themselves.
            connect: opens the side to gRPC.
            on_lost: hears of the end.
        """
        super().__init__(quotas.buffer)
        self.host = host
        self._account = account
        self._on_lost = on_lost
        self._limits = limits
        self._quotas = quotas
        self._connect = connect
        self._frames = ClientFrames(limits.header_bytes)
        self._grpc: GrpcServerConnection | None = None
        self._calls: dict[int, int] = {}
        """The streams of open calls, with the bytes of their header sections and messages."""
        self._pending: set[int] = set()
        """Those of them that gRPC has not given to the service."""
        self._last_stream = 0
        self._task: asyncio.Task[None] | None = None
        """Passes on what has to wait; nothing is read meanwhile."""
        self._dropped_bytes: int | None = None
        """What came since the client was told to leave; None before."""
        self._is_lost = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    @property
    def _turns_account(self) -> str:
        return self._account or self.host

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head_timer = self._abort_later(self._limits.header_seconds)

    def _abort_later(self, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self.abort)

    # From the client

    def receive(self, data: bytes) -> None:
        if self._dropped_bytes is not None:
            self._drop(len(data))
            return
        try:
            self._frames.feed(data)
            if self._task is not None:  # TLS had more of what it had read before
                return
            left = self._pass_at_once()
        except Http2Error as error:
            self._refuse(error)
            return
        if left or (self._grpc is None and self._frames.has_preface):
            self.transport.pause_reading()
            self._task = asyncio.ensure_future(self._pass_in_turns(left))
        self._watch_headers()

    def _pass_at_once(self) -> Http2Frame | None:
        """Passes on what its address may in this iteration of the event loop; returns the first frame that has to wait.

        Raises:
            Http2Error: the client has to leave.
        """
        share = self._quotas.at_once.left(self._turns_account)
        frame, left = self._pass_frames(share)
        self._quotas.at_once.take(self._turns_account, share - left)
        return frame

    def _pass_frames(self, cost: int, taken: Http2Frame | None = None) -> tuple[Http2Frame | None, int]:
        """Passes on frames of so much cost; returns the first that has to wait, and the cost that was left.

        Args:
            taken: the frame that goes first; its call counts already.

        Raises:
            Http2Error: the client has to leave.
        """
        grpc = self._grpc
        if grpc is None:
            return None, cost
        passed = []
        frame = taken
        while frame is not None or (frame := self._frames.read()) is not None:
            if frame is not taken and (cost <= 0 or grpc.written is not None or not self._take(frame)):
                break
            if frame.is_significant:
                passed.append(self._count(frame, grpc))
            cost -= _COST.get(frame.kind, 1)
            frame = None
        if passed:
            grpc.transport.write(b"".join(passed))
        if not self.is_behind:
            grpc.send_waiting()
        return frame, cost

    async def _pass_in_turns(self, frame: Http2Frame | None) -> None:
        """Passes on what has come, in turn with other addresses; then reads on."""
        try:
            if self._grpc is None:
                self._grpc = await self._connect(self)
                frame = self._pass_at_once()
            while frame is not None:
                await self._quotas.turns.take(self._turns_account)
                if self._grpc.written is not None:
                    await self._grpc.written
                await self._take_in_turn(frame)
                frame, _ = self._pass_frames(_TURN_COST, frame)
        except Http2Error as error:
            self._refuse(error)
        except OSError:  # gRPC has stopped
            self.abort()
        else:
            self._task = None
            self._watch_headers()
            self.transport.resume_reading()

    def _watch_headers(self) -> None:
        """Gives the client its time for a header section once it has begun one."""
        is_waiting = not self._frames.has_preface or self._frames.is_in_headers
        if is_waiting and self._head_timer is None:
            self._head_timer = self._abort_later(self._limits.header_seconds)
        elif not is_waiting and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, error: Http2Error) -> None:
        """Tells the client why it has to leave; drops what it still sends, which would keep it from reading that."""
        if self._grpc is None or self._grpc.is_between_frames:
            self.transport.write(write_goaway(self._last_stream, error))
        self._dropped_bytes = 0
        self._frames = ClientFrames(self._limits.header_bytes)
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._head_timer = self._abort_later(_LINGER_SECONDS)
        if self._grpc is not None:
            self._grpc.transport.abort()
        self.transport.resume_reading()

    def _drop(self, size: int) -> None:
        self._dropped_bytes = (self._dropped_bytes or 0) + size
        if self._dropped_bytes > _MAX_DROPPED_BYTES:
            self.abort()

    # What calls take of their address

    def _begins_call(self, frame: Http2Frame) -> bool:
        return frame.kind == FrameType.HEADERS and frame.stream > self._last_stream

    def _take(self, frame: Http2Frame) -> bool:
        """Counts a call that begins as one that waits; returns False if there are too many."""
        return self._account is None or not self._begins_call(frame) or self._quotas.pending.take(self._account)

    async def _take_in_turn(self, frame: Http2Frame) -> None:
        """
        Raises:
            Http2Error: no other call of the address was served for too long.
        """
        if self._account is None or not self._begins_call(frame):
            return
        if not await self._quotas.pending.take_in_turn(self._account, 1, self._limits.body_seconds):
            raise Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "too many calls of this address wait")

    def _count(self, frame: Http2Frame, grpc: GrpcServerConnection) -> bytes:
        """Notes what a frame takes; returns what is passed on for it."""
        stream, size = frame.stream, len(frame.payload)
        match frame.kind:
            case FrameType.HEADERS:
                if self._begins_call(frame):
                    self._last_stream = stream
                    self._calls[stream] = 0
                    self._pending.add(stream)
                # In any case, because gRPC's table of fields changes with it.
                return write_headers(frame, CALL_KEY.encode(), b"%d" % stream) + self._count_bytes(stream, size, grpc)
            case FrameType.DATA if self._account is not None:
                refusal = self._count_bytes(stream, size, grpc)
                if stream in self._calls:
                    return write_frame(*frame)
                if size:  # gRPC does not see these bytes, so that nobody else lets the client send as many again
                    grpc.open_window(size)
                return refusal
            case FrameType.RST_STREAM:
                self._leave_call(stream)
            case _:
                pass
        return write_frame(*frame)

    def _count_bytes(self, stream: int, size: int, grpc: GrpcServerConnection) -> bytes:
        """Counts bytes of a call, or ends the call if its address has too many; returns what tells gRPC so."""
        if self._account is None or stream not in self._calls:
            return b""
        if self._quotas.bodies.take(self._account, size):
            self._calls[stream] += size
            return b""
        self._leave_call(stream)
        grpc.send_own(write_reset(stream, ErrorCode.ENHANCE_YOUR_CALM))
        return write_reset(stream, ErrorCode.CANCEL)

    def take_call(self, stream: int) -> None:
        """Counts a call as given to the service."""
        if stream in self._pending:
            self._pending.remove(stream)
            self._give_back(1, 0)

    def end_call(self, stream: int) -> None:
        """Gives back what a call took that gRPC has ended."""
        if stream in self._pending:  # gRPC has refused it, and may still have it in its queue
            self._leave_call(stream)
        else:
            self._give_back(0, self._calls.pop(stream, 0))

    def _leave_call(self, stream: int) -> None:
        """Gives back what a call took somewhat later."""
        size = self._calls.pop(stream, None)
        if size is not None:
            pending = int(stream in self._pending)
            self._pending.discard(stream)
            asyncio.get_running_loop().call_later(_RESET_SECONDS, self._give_back, pending, size)

    def _give_back(self, pending: int, size: int) -> None:
        if self._account is None:
            return
        if pending:
            self._quotas.pending.give_back(self._account, pending)
        if size:
            self._quotas.bodies.give_back(self._account, size)

    # To the client

    @property
    def is_behind(self) -> bool:
        """Whether the client has yet to read what was sent to it."""
        return self._send_timer is not None

    def pause_writing(self) -> None:
        self._send_timer = self._abort_later(self._limits.send_seconds)
        if self._grpc is not None:
            self._grpc.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
        if self._grpc is not None:
            self._grpc.send_waiting()
            self._grpc.transport.resume_reading()

    # The end

    def close_after_grpc(self) -> None:
        """Closes the connection, which gRPC has closed, once the client has read what was sent to it."""
        if self._is_lost or self._dropped_bytes is not None:  # a timer would hold all of a lost one for its time
            return
        if self._send_timer is None:
            self._send_timer = self._abort_later(self._limits.send_seconds)
        self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        for timer in (self._head_timer, self._send_timer):
            if timer is not None:
                timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if self._grpc is not None:
            self._grpc.transport.abort()
        for stream in tuple(self._calls):
            self._leave_call(stream)
        self._on_lost(self)
