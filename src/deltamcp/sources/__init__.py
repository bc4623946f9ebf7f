"""Sources of operations that come from a file: Python functions, HTTP services and other MCP servers."""
