"""Encoding and decoding of messages: JSON-RPC, codecs, lines and server-sent events, without I/O."""
