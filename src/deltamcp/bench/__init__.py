"""Benchmarks that come with the package, so that users can repeat the measurements over their own data."""
