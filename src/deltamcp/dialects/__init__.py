"""The dialects, which read messages as values and write values as messages. They do no I/O and keep no state."""
