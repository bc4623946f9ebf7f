"""Benchmarks that come with the package: anyone with the data can repeat what is claimed."""
