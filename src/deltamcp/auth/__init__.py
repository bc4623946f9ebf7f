"""Who sends a request: bearer tokens, their verification, and what a server tells clients about authorization."""
