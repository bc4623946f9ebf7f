"""How messages travel: stdio and Streamable HTTP. A transport moves bytes; the dialects read what they mean.

A transport over one two-way connection implements `duplex.Connection` and gives every message to a `Duplex`.
HTTP is an ASGI application, `http_app.py`: authentication and admission are there, and other pages of a server stand
beside it as routes, see `DeltaServer.routes`.
"""
