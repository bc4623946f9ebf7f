"""Mutated HTTP requests and JSON-RPC messages, sent to a server process. Run `make fuzz`."""
