"""The gateway: offers the items of other MCP servers through one server of this library."""
