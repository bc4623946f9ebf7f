import sys
from pathlib import Path

import pytest

from deltamcp.runtime.files import user_folder


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, ".local/state/delta-mcp"),
        ("linux", {"XDG_STATE_HOME": "/x"}, "/x/delta-mcp"),
        ("linux", {"XDG_STATE_HOME": "x"}, ".local/state/delta-mcp"),
        ("darwin", {"XDG_STATE_HOME": "/x"}, "Library/Application Support/delta-mcp"),
        ("win32", {}, "AppData/Local/delta-mcp"),
        ("win32", {"LOCALAPPDATA": "/x"}, "/x/delta-mcp"),
    ],
)
def test_the_folder_is_the_systems_own(platform, variables, expected, monkeypatch):
    for name in ("XDG_STATE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert user_folder("state") == Path.home() / expected


def test_each_purpose_has_a_folder_of_its_own_on_linux(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    folders = {user_folder("state"), user_folder("cache"), user_folder("config")}
    assert folders == {Path.home() / name / "delta-mcp" for name in (".local/state", ".cache", ".config")}
