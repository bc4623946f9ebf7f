"""What the replicas of a server share through its store: messages to each other, changes, and who is alive."""
