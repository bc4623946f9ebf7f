"""The channel of a call behind a promise: its client does not wait, so what the call reports goes into the record."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable, Mapping

from deltamcp.context import Channel, ProgressReport
from deltamcp.stores.store import StoreError

_PROGRESS_SECONDS = 0.5
"""The time between two changes of the record because of progress; what is reported meanwhile goes into the next."""


class PromiseChannel(Channel):
    """A `Channel` without a client. Close it when the call has ended."""

    takes_every_progress = True
    unasked = "Nobody waits for this call, so that nobody can be asked in this way."

    def __init__(
        self,
        fairness_key: Hashable,
        headers: Mapping[bytes, bytes],
        write_progress: Callable[[ProgressReport], Awaitable[object]],
    ) -> None:
        self.fairness_key = fairness_key
        self.headers = headers
        self._write_progress = write_progress
        self._latest: ProgressReport | None = None
        self._writer: asyncio.Task[None] | None = None

    async def report(self, progress: ProgressReport) -> None:
        self._latest = progress
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        while (latest := self._latest) is not None:
            self._latest = None
            with contextlib.suppress(StoreError, ValueError):  # of a text that is none; progress is told again
                await self._write_progress(latest)
            await asyncio.sleep(_PROGRESS_SECONDS)
        self._writer = None

    def close(self) -> None:
        """Stops writing progress."""
        if self._writer is not None:
            self._writer.cancel()
