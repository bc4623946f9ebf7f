"""uvicorn with one set of settings for every server that is an ASGI application."""

from typing import Any

import uvicorn


def serve(app: Any, port: int) -> None:
    """Serves in one process with what `DeltaServer.run("http")` sets: uvloop if installed, httptools, no access log."""
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="auto",
        http="httptools",
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=60,
    )
