"""MCP-lite over gRPC. It needs the packages of the extra `grpc`."""
