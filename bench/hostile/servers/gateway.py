"""A gateway as `delta-mcp gateway` runs it, over HTTP, with folders of its own: `python -m … PORT OPTIONS`."""

import json
import os
import sys
from pathlib import Path

from . import tools
from .options import GatewayOptions


def configuration(options: GatewayOptions) -> str:
    """The `gateway.toml` of a gateway; JSON's texts, numbers, arrays and words are TOML's, too."""
    lines = [
        f'disclosure = "{options.disclosure}"',
        f"wait_seconds = {options.wait_seconds}",
        f'public_url = "{options.public_url}"',
    ]
    for name, keys in options.upstreams:
        lines += ["", f"[servers.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    from deltamcp.cli.main import main

    given = GatewayOptions.parse(sys.argv[2])
    file = Path(given.folder) / "gateway.toml"
    file.write_text(configuration(given))
    for kind in ("CONFIG", "CACHE", "STATE", "DATA"):
        os.environ[f"XDG_{kind}_HOME"] = given.folder
    os.environ["DELTA_MCP_TOKENS"] = given.tokens
    tools.settle_on_signal()
    auth = ["--auth", "tokens"] if given.tokens else []
    main(["gateway", str(file), "--http", f"127.0.0.1:{sys.argv[1]}", *auth])
