"""Counts the iterations of the event loop, between which others are served."""

import asyncio


class LoopIterations:
    """Counts from now on."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._count_on)

    def _count_on(self) -> None:
        self.count += 1
        self._loop.call_soon(self._count_on)
