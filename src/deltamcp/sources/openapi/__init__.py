"""Operations of an HTTP API, from its OpenAPI document.

`Api` (`api.py`) is a document with what its user has set: read it first. The document stays as it was written; what one
operation needs of it is resolved for that operation. Nothing here does I/O but `location.py` and `service.py`.
"""
