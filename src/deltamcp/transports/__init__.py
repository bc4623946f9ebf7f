"""How messages travel: stdio and Streamable HTTP. A transport moves bytes; the dialects read what they mean.

A transport over one two-way connection implements `duplex.Connection` and gives every message to a `Duplex`, with the
principal that the connection is for.
HTTP is an ASGI application, `http_app.py`. It takes the principal that an authentication middleware has put into the
scope, and admits hosts and origins. Other pages of a server are routes beside it, see `DeltaServer.routes`.
"""
