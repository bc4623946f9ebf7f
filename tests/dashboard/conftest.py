import pytest


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """Every test has its own folders for what gateways keep."""
    for purpose in ("STATE", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{purpose}_HOME", str(tmp_path / purpose.lower()))
