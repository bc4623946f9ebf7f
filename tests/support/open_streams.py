"""Closes asyncio's streams that are open when their event loop closes, as those of a peer whose test has ended may be.

A search for garbage would find them in a later test, which would fail for them. Connections of the library itself are
no streams, except where a login waits for a browser: what it leaves open still fails a test.
"""

import asyncio
from typing import Any

_close = asyncio.SelectorEventLoop.close


def close_with_streams(loop: Any) -> None:
    """Closes a loop; it takes the place of the loop's own method."""
    if not loop.is_closed() and not loop.is_running():
        transports = [*loop._transports.values()]
        left = [one for one in transports if isinstance(one.get_protocol(), asyncio.StreamReaderProtocol)]
        for transport in left:
            transport.abort()
        if left:
            loop.run_until_complete(asyncio.sleep(0))
    _close(loop)
