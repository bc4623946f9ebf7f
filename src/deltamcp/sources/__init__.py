"""Operations that call something else: an HTTP service, another MCP server, a Python function.

A new kind of source is a file here with a `SourceConnection`, which `operations_loader.py` builds from an operations
file; `catalog/operations_file/` reads the keys that describe it.
"""
