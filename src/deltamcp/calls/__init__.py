"""Performs requests: `engine.py` dispatches them, `tool_calls.py` calls operations."""
