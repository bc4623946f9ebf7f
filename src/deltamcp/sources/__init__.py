"""Where operations come from that no function here performs: modules, HTTP services, other MCP servers."""
