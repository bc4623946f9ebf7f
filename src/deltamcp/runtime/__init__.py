"""What a running server needs besides its requests: deadlines, threads, a lifespan, change notices, sealed state."""
