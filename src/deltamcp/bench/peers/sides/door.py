"""uvicorn with one set of settings for every side that is an ASGI application."""

from typing import Any

import uvicorn


def serve(app: Any, port: int) -> None:
    """One process, uvloop where there is one, httptools, no access log: what `DeltaServer.run("http")` sets as well."""
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
