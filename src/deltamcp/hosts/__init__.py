"""The files of MCP hosts: what they look like, the servers that they list, and the gateway in the place of those."""
