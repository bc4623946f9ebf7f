"""Python code as a graph of symbols: read, linked and ranked."""
