"""Faults of clients, tools and signals, tried on this library, the official SDK and FastMCP. Run `make faults`."""
