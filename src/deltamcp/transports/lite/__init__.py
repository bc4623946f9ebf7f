"""MCP-lite over HTTP, and what it has in common with MCP-lite over stdio and gRPC."""
