"""Stored logins: who can read them, and what several programs do to them at once."""

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from deltamcp.client.oauth.token_storage import (
    ClientIdentity,
    IssuedTokens,
    IssuerLogin,
    LoginRecord,
    MemoryStorage,
    UserStorage,
    decode_record,
    encode_record,
)
from deltamcp.errors import ConfigurationError

SERVER = "https://mcp.example/mcp"
posix = pytest.mark.skipif(os.name != "posix", reason="Windows has other permissions")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a" / "logins"


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_what_is_saved_is_loaded_until_it_is_deleted(kind, folder):
    storage = MemoryStorage() if kind == "memory" else UserStorage(folder, uses_keyring=False)
    assert await storage.load(SERVER) is None
    await storage.save(SERVER, b"1")
    await storage.save("https://other.example/", b"other")
    await storage.save(SERVER, b"2")
    assert await storage.load(SERVER) == b"2"
    await storage.delete(SERVER)
    await storage.delete(SERVER)
    assert await storage.load(SERVER) is None
    assert await storage.load("https://other.example/") == b"other"


@posix
async def test_only_the_owner_can_read_folder_and_files(folder):
    before = os.umask(0)
    try:
        storage = UserStorage(folder, uses_keyring=False)
        async with storage.lock(SERVER):
            await storage.save(SERVER, b"secret")
    finally:
        os.umask(before)
    assert _mode(folder) == 0o700
    assert {_mode(path) for path in folder.iterdir()} == {0o600}
    assert not any("mcp.example" in path.name for path in folder.iterdir())


@posix
async def test_permissions_that_somebody_widened_are_narrowed(folder):
    storage = UserStorage(folder, uses_keyring=False)
    await storage.save(SERVER, b"secret")
    (file,) = folder.glob("*.json")
    file.chmod(0o644)
    folder.chmod(0o755)
    assert await storage.load(SERVER) == b"secret"
    assert _mode(file) == 0o600
    await storage.save(SERVER, b"more")
    assert _mode(folder) == 0o700


async def test_a_folder_that_cannot_be_written_is_told_and_loads_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    storage = UserStorage(tmp_path / "file" / "logins", uses_keyring=False)
    assert await storage.load(SERVER) is None
    async with storage.lock(SERVER):
        with pytest.raises(ConfigurationError, match="cannot be stored"):
            await storage.save(SERVER, b"secret")


async def test_a_user_without_a_home_has_no_logins_and_is_told_so(monkeypatch):
    def find_no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", find_no_home)
    storage = UserStorage(uses_keyring=False)
    assert await storage.load(SERVER) is None
    async with storage.lock(SERVER):
        with pytest.raises(ConfigurationError, match="no home"):
            await storage.save(SERVER, b"secret")


WRITER = """
import asyncio, sys
from pathlib import Path
from deltamcp.client.oauth.token_storage import UserStorage

async def main():
    storage = UserStorage(Path(sys.argv[1]), uses_keyring=False)
    for _ in range(25):
        async with storage.lock("s"):
            count = int(await storage.load("s") or b"0")
            await asyncio.sleep(0.001)
            await storage.save("s", str(count + 1).encode())

asyncio.run(main())
"""


def test_programs_that_change_a_record_at_once_lose_nothing(folder):
    programs = [subprocess.Popen([sys.executable, "-c", WRITER, str(folder)]) for _ in range(3)]
    assert [program.wait(120) for program in programs] == [0, 0, 0]
    assert asyncio.run(UserStorage(folder, uses_keyring=False).load("s")) == b"75"
    assert not list(folder.glob(".*")), "a file that was begun is not left"


async def test_tasks_of_one_program_wait_for_each_other_too(folder):
    storage, order = UserStorage(folder, uses_keyring=False), []

    async def hold(name: str) -> None:
        async with storage.lock(SERVER):
            order.append(name)
            await asyncio.sleep(0.01)
            order.append(name)

    await asyncio.gather(hold("a"), hold("b"), hold("c"))
    assert order[0::2] == order[1::2]


class FakeKeyring(SimpleNamespace):
    """The functions of the package `keyring` that are used."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, secret: str) -> None:
        self.kept[service, name] = secret

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


async def test_a_keyring_keeps_the_record_and_the_file_says_so(folder, monkeypatch):
    keyring = FakeKeyring()
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    storage = UserStorage(folder)
    await storage.save(SERVER, b"secret")
    assert keyring.kept == {("delta-mcp", SERVER): "secret"}
    assert await storage.load(SERVER) == b"secret"
    assert all(b"secret" not in path.read_bytes() for path in folder.iterdir())
    await storage.delete(SERVER)
    assert keyring.kept == {} and await storage.load(SERVER) is None


def _raise(*arguments: str) -> None:
    raise RuntimeError("no such secret service")


def _forget(*arguments: str) -> None:
    """Does what a keyring does that is switched off: nothing."""


@pytest.mark.parametrize(
    "broken", [{"set_password": _raise}, {"get_password": _raise}, {"set_password": _forget}, None]
)
async def test_without_a_keyring_that_works_the_file_keeps_the_record(folder, monkeypatch, broken):
    keyring = None if broken is None else FakeKeyring()
    if keyring is not None:
        vars(keyring).update(broken)
    monkeypatch.setitem(sys.modules, "keyring", keyring)  # None: it is not installed
    storage = UserStorage(folder)
    await storage.save(SERVER, b"secret")
    assert await storage.load(SERVER) == b"secret"
    assert [path.read_bytes() for path in folder.glob("*.json")] == [b"secret"]


async def test_a_keyring_that_is_gone_means_no_login(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", FakeKeyring())
    await UserStorage(folder).save(SERVER, b"secret")
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert await UserStorage(folder).load(SERVER) is None


async def test_the_keyring_is_not_asked_about_servers_without_a_login(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "keyring", FakeKeyring())
    monkeypatch.setattr(FakeKeyring, "get_password", _raise)
    assert await UserStorage(folder).load(SERVER) is None


@pytest.mark.parametrize("data", [None, b"", b"{", b"[]", b'{"logins": 3}', b"\xff"])
def test_a_record_that_cannot_be_read_counts_as_none(data):
    assert decode_record(data) == LoginRecord()


def test_a_record_is_read_as_it_was_written_and_shows_no_secret():
    tokens = IssuedTokens("acc3ss", "r3fresh", ("a",))
    client = ClientIdentity("id", "client_secret_basic", "s3cret", 5.0, "http://127.0.0.1:1/callback", "a b", True)
    record = LoginRecord().with_login("https://as.example", IssuerLogin(client, tokens, ("a",)))
    assert decode_record(encode_record(record)) == record
    for shown in (record, tokens, client, record.current):
        assert not any(secret in repr(shown) for secret in ("acc3ss", "r3fresh", "s3cret"))
