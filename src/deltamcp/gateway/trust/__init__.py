"""Which definitions of upstreams may be offered: what was approved, what changed since, what imitates another."""
