"""Environments of their own for the peers we measure beside, made on request and kept."""

import os
import subprocess
import sys
import venv
from pathlib import Path

from deltamcp.errors import ConfigurationError

FASTMCP = "fastmcp==4.1.2"
SDK = "mcp==2.3.0"


def python_with(*requirements: str) -> str:
    """The interpreter of an environment that has these packages; the first time it takes a minute and the network.

    Raises:
        ConfigurationError: they cannot be installed.
    """
    folder = _cache() / "+".join(requirements).replace("==", "-")
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not (folder / "ready").is_file():
        venv.create(folder, clear=True, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", *requirements]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
        if done.returncode:
            reason = done.stderr.strip().rpartition("\n")[2]
            raise ConfigurationError(f"{' '.join(requirements)} cannot be installed: {reason}")
        (folder / "ready").touch()
    return str(python)


def _cache() -> Path:
    """By Python, for sides on different ones would not be compared."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "delta-mcp" / "peers" / "python{}.{}".format(*sys.version_info)
