"""What this library makes of a directory of others' tools and results: tokens, retrieval, results, deltas."""
