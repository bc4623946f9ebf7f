"""Servers that strangers published: what their results cost behind the gateway, and whether each works there."""
