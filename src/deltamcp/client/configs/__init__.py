"""Reads the configuration files in which MCP hosts list their servers."""
