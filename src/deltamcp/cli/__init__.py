"""The command line `delta-mcp`; one module per verb."""
