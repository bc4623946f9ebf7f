"""GCF's graph profile: packs of symbols and edges, deltas between packs, streams, and sessions that number symbols."""
