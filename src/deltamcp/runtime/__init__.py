"""Services of a running server: deadlines, threads, the lifespan, change notifications, the watchdog, sealed state."""
