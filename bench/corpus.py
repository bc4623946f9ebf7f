"""Where the corpus lies that benchmarks read, as tests do: in `DELTA_MCP_SHARED`, by default beside the repository."""

import os
from pathlib import Path

CORPUS = Path(os.environ.get("DELTA_MCP_SHARED", "../shared")) / "corpus"
