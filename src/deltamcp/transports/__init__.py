"""How messages travel: stdio, Streamable HTTP and gRPC. A transport moves bytes; the dialects read what they mean.

A transport over one two-way connection implements `stdio.duplex.Connection` and gives every message to a `Duplex`, with
the principal that the connection is for. Over HTTP and gRPC a request first passes the steps of `admission.py`.
"""
