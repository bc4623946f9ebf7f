"""Mutated HTTP requests, JSON-RPC messages and gRPC, sent to a server process. Run `make fuzz`."""
