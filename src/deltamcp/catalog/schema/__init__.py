"""JSON Schemas: what they declare, what fits them, and what validation costs."""
