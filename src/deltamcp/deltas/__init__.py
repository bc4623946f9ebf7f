"""Deltas of any JSON value or text: the second time, only what changed."""
