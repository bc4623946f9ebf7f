"""Weather stations over MCP-lite and gRPC, and a client that asserts what it gets."""
