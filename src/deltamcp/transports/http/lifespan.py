"""The lifespan protocol of ASGI: starts the server before the first request, and stops it after the last."""

import logging

from deltamcp.calls.engine import Engine
from deltamcp.transports.http.asgi import Receive, Send

logger = logging.getLogger("deltamcp.http")


async def serve_lifespan(engine: Engine, receive: Receive, send: Send) -> None:
    """Answers the ASGI server's messages of startup and shutdown."""
    await receive()
    try:
        async with engine.lifespan.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
            engine.lifespan.drain(engine.limits.drain_seconds)
    except Exception as error:
        logger.error("the server could not start or stop", exc_info=error)
        await send({"type": "lifespan.startup.failed", "message": type(error).__name__})
        return
    await send({"type": "lifespan.shutdown.complete"})
