"""Operations that call something else: an HTTP service, another MCP server, a Python function.

A new kind of source is a file here, with a class that calls the other side and has `close()`; `operations_loader.py`
makes it, and has the union of these classes, `SourceConnection`. `catalog/operations_file.py` has the keys that
describe it.
"""
