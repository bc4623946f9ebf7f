"""The MCP client: connects to any MCP server, lists its tools and calls them."""
