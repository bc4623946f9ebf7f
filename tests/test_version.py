"""The version that the library tells peers is that of its package."""

import tomllib

from deltamcp.version import VERSION
from tests.support.paths import ROOT


def test_the_version_is_that_of_the_package():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION
