"""FastMCP's server of an OpenAPI document, as its documentation makes one, on stdio."""

import json
import sys
from pathlib import Path
from typing import Any

import httpx2
from fastmcp import FastMCP

if __name__ == "__main__":
    document: Any = json.loads(Path(sys.argv[1]).read_text())
    client = httpx2.AsyncClient(base_url="http://127.0.0.1:9")
    FastMCP.from_openapi(openapi_spec=document, client=client, name="bench").run(show_banner=False)
