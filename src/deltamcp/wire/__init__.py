"""Bytes to messages and back. Pure: no socket, no clock, no logger."""
