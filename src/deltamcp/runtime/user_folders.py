"""The folders in which the programs of this library keep files for their user."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from deltamcp.errors import ConfigurationError

_FOLDERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "win32": {
        "state": ("LOCALAPPDATA", "AppData", "Local"),
        "cache": ("LOCALAPPDATA", "AppData", "Local"),
        "config": ("APPDATA", "AppData", "Roaming"),
    },
    "darwin": {
        "state": ("", "Library", "Application Support"),
        "cache": ("", "Library", "Caches"),
        "config": ("", "Library", "Application Support"),
    },
    "linux": {
        "state": ("XDG_STATE_HOME", ".local", "state"),
        "cache": ("XDG_CACHE_HOME", ".cache"),
        "config": ("XDG_CONFIG_HOME", ".config"),
    },
}
"""By system and purpose: the variable that names the folder, and where it is in the user's home without it."""


def user_folder(purpose: Literal["state", "cache", "config"]) -> Path:
    """Returns the user's folder of delta-mcp for a purpose: XDG's on Linux, the system's own elsewhere.

    Raises:
        ConfigurationError: the user has no home, as in some containers.
    """
    variable, *names = _FOLDERS.get(sys.platform, _FOLDERS["linux"])[purpose]
    base = Path(os.environ.get(variable) or "")
    if not base.is_absolute():  # the XDG specification has programs ignore other paths
        base = user_home().joinpath(*names)
    return base / "delta-mcp"


def user_home() -> Path:
    """
    Raises:
        ConfigurationError: the user has no home, as in some containers.
    """
    try:
        return Path.home()
    except RuntimeError:
        raise ConfigurationError("There is no home to keep files in; set HOME, or give a folder.") from None
