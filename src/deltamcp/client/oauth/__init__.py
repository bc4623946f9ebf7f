"""The OAuth 2.1 client: how a program gets access tokens for an MCP server (MCP, "Authorization")."""
