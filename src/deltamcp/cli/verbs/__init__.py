"""The verbs of `delta-mcp`, one module each or one for a pair; `deltamcp.cli.main` has their table."""
