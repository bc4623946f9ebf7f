"""The benchmarks by name: each module measures one thing and gives a `BenchReport`."""
