"""A bookshop over MCP-lite and HTTP, and a client that asserts what it gets."""
