"""GCF for any JSON value: the generic profile, its tables, its streams, and version 1 of it."""
