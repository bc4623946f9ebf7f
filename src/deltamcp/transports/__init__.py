"""How messages travel: stdio and Streamable HTTP. A transport moves bytes; the dialects read what they mean.

A transport over one two-way connection implements `duplex.Connection` and gives every message to a `Duplex`, with the
principal that the connection is for.
HTTP is an ASGI application, `http_app.py`, which admits requests by host, origin and credentials; `mcp_endpoint.py`
serves them, and `open_pages.py` has the other pages.
"""
