"""What agents pay for tasks of several steps through one gateway."""
