"""Other MCP servers whose tools, resources and prompts this one offers: their connections, and requests to them."""
