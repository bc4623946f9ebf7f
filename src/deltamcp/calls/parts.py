"""The parts of a result, which a generator function yields one after the other.

Each part goes to the client as soon as it is there, where the client takes parts; all of them together are the value of
the call. The function goes on when the part is sent, so that it does not run ahead of a slow reader.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from deltamcp.context import Channel, Context


def collecting(function: Callable[..., Any], is_async: bool, channel: Channel, context: Context) -> Callable[..., Any]:
    """Returns a function that runs a generator function to its end, sends its parts, and returns the value.

    What it returns is async if the generator is; else it runs in a thread, and ends after the next part if the call is
    cancelled.
    """

    async def collect(**arguments: Any) -> Any:
        parts: list[Any] = []
        async with contextlib.aclosing(function(**arguments)) as generator:
            async for part in generator:
                parts.append(part)
                await channel.send_part(part)
        return join_parts(parts)

    def collect_in_thread(**arguments: Any) -> Any:
        parts: list[Any] = []
        with contextlib.closing(function(**arguments)) as generator:
            for part in generator:
                parts.append(part)
                if context.cancelled:
                    break
                context.wait(channel.send_part(part))
        return join_parts(parts)

    return collect if is_async else collect_in_thread


def join_parts(parts: list[Any]) -> Any:
    """Returns the value that parts make together: one text, if all are texts; else the list of them."""
    return "".join(parts) if all(isinstance(part, str) for part in parts) else parts
