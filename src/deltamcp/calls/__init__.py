"""Serving one request: `engine.py` dispatches, `tool_call.py` is the way of one call."""
