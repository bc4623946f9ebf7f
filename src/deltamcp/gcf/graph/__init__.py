"""GCF for graphs of symbols: payloads, deltas between them, streams, and sessions that number symbols."""
