"""`make soak`: minutes of mixed load with faults and short lifetimes, after which a server must hold nothing more."""
