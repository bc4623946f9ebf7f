"""What a benchmark is asked to do."""

from typing import NamedTuple

from bench.peers import InstalledPeers


class BenchOptions(NamedTuple):
    rounds: int
    """Times each server is loaded."""
    seconds: float
    """Length of one load."""
    peers: InstalledPeers
    full: bool
    """Whether the peers, too, are asked for what takes them minutes."""
