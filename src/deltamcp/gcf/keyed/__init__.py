"""GCF's keyed sets: sets of rows that one field identifies, deltas between sets, and sessions."""
