"""GCF for sets of rows that have a key: deltas between them, and sessions."""
