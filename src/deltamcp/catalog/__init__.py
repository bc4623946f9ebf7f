"""The catalog of operations, resources and prompts: definitions, schemas, search and texts, without I/O.

Nothing in this package calls an author's function.
"""
