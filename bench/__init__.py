"""Speed and memory of this library beside the bare limit, the official SDK and FastMCP. Run `make bench`."""
