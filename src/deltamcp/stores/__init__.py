"""Stores for data that outlives a request: in memory, in SQLite and in Redis."""
