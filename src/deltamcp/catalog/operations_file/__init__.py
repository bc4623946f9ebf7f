"""`operations.json`: operations written down as data."""
