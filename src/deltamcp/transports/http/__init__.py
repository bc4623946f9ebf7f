"""MCP, MCP-lite and Delta-MCP 0.2 over HTTP: an ASGI application, `app.py`, and what runs it, `server.py`.

`exchange.py` is one request and its response; `endpoint.py` and `mcp_lite.py` serve what the application has admitted.
"""
