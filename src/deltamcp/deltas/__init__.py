"""Text deltas between two states of any JSON value, and the roots that identify a state."""
