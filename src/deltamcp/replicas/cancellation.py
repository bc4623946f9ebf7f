"""The cancellation of loops that use the store."""

import asyncio


def raise_if_cancelled() -> None:
    """Ends a loop that was cancelled while it waited for the store.

    redis-py 8.1 loses a cancellation that comes while it connects: what it was asked for is done all the same.

    Raises:
        CancelledError: the current task was cancelled.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
