"""The caller's side: any MCP server, through one client."""
