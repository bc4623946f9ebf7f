"""Ways to a server. Each carries messages, and knows nothing of tools."""
