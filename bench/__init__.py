"""How fast, how small: this library beside the bare limit, the official SDK and FastMCP. Run `make bench`."""
