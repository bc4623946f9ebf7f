"""A server whose callers log in, with an authorization server for development and a client that asserts."""
