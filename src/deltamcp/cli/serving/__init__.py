"""What the verbs that run a server have in common: its options, its log, its processes."""
