"""A queue of promised calls in this process, whose workers can be made to wait or to die."""

import asyncio
from typing import Any

from deltamcp import DeltaServer


class TaskQueue:
    """Runs each key in a task of its own, once the queue is open."""

    def __init__(self, server: DeltaServer) -> None:
        self.server = server
        self.keys: list[str] = []
        self.is_open = True
        self.tasks: set[asyncio.Task[None]] = set()

    async def enqueue(self, key: str) -> None:
        if key in self.keys:
            return
        self.keys.append(key)
        if self.is_open:
            self.work(key)

    def work(self, key: str) -> None:
        promise_calls = self.server.engine.promise_calls
        assert promise_calls is not None
        task = asyncio.get_running_loop().create_task(promise_calls.run(key))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def open(self) -> None:
        """Runs what was queued while it was closed."""
        self.is_open = True
        for key in self.keys:
            self.work(key)

    async def kill(self) -> None:
        """Cancels the tasks of all workers."""
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def queue_for(server: DeltaServer) -> TaskQueue:
    """Gives a server a queue."""
    queue = TaskQueue(server)
    engine: Any = server.engine
    engine.promise_queue = queue
    return queue
