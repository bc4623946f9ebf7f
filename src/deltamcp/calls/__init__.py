"""Serving one request: `engine.py` dispatches, `tool_calls.py` has one call from top to bottom."""
