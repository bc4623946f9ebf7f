"""Promises: calls that the server goes on with after its reply. Their records, and what runs them."""
