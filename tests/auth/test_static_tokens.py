"""Tokens of the operator's own: digests in a file or a variable, read again when the file changes."""

import logging
import os
from pathlib import Path

import pytest

from deltamcp import ConfigurationError, StaticTokens
from deltamcp.auth.authenticator import Credentials
from deltamcp.auth.static_tokens import make_token, read_tokens
from deltamcp.errors import Fault
from deltamcp.values import Failure, Principal
from tests.support.command_line import assert_one_sentence, run


async def name_of(auth: StaticTokens, token: str) -> str | None:
    auth._next_look = 0.0
    found = await auth.authenticate(Credentials(f"Bearer {token}", {}))
    return found.id if isinstance(found, Principal) else None


def write(path: Path, *lines: str) -> None:
    """Writes a file whose time of change differs from any before."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text("\n".join(lines))
    path.chmod(0o600)
    os.utime(path, ns=(before + 10**9, before + 10**9))


async def test_a_token_names_its_holder_and_scopes_and_others_are_refused(tmp_path: Path) -> None:
    token, line = make_token("robot", ["read", "write:all"])
    other, _ = make_token("robot")
    path = tmp_path / "tokens"
    write(path, "# of the build", "", line)
    assert token not in path.read_text()
    auth = StaticTokens(path)
    found = await auth.authenticate(Credentials(f"Bearer {token}", {}))
    assert found == Principal("robot", frozenset({"read", "write:all"}), {}, "static-tokens")
    for wrong in (other, token[:-1], f"{token}x", token.upper(), line.split()[1], line.split()[1][7:]):
        refused = await auth.authenticate(Credentials(f"Bearer {wrong}", {}))
        assert isinstance(refused, Failure)
        assert (refused.fault, refused.data) == (Fault.UNAUTHORIZED, {"reason": "unknown_token"})
    missing = await auth.authenticate(Credentials(None, {}))
    assert isinstance(missing, Failure)
    assert auth.challenge(missing) == "Bearer"
    lacking = Failure(Fault.INSUFFICIENT_SCOPE, "no", missing_scopes=frozenset("b"), granted_scopes=frozenset("a"))
    assert auth.challenge(lacking) == 'Bearer error="insufficient_scope", error_description="no", scope="a b"'


async def test_a_file_that_changes_is_read_again_and_a_wrong_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (first, first_line), (second, second_line) = make_token("first"), make_token("second")
    path = tmp_path / "tokens"
    write(path, first_line)
    auth = StaticTokens(path)
    assert (await name_of(auth, first), await name_of(auth, second)) == ("first", None)
    write(path, second_line)
    assert (await name_of(auth, first), await name_of(auth, second)) == (None, "second")
    for spoil in (
        lambda: write(path, "nonsense"),
        lambda: path.write_bytes(b"\xff\xff"),
        lambda: path.chmod(0o602),
        path.unlink,
    ):
        spoil()
        with caplog.at_level(logging.ERROR):
            assert await name_of(auth, second) == "second"
        assert "the tokens stay as they were" in caplog.text
    write(path, first_line)
    assert await name_of(auth, first) == "first"


async def test_a_file_that_was_refused_for_its_mode_is_read_once_its_mode_is_right(tmp_path: Path) -> None:
    (first, first_line), (_, second_line) = make_token("first"), make_token("second")
    path = tmp_path / "tokens"
    write(path, first_line)
    auth = StaticTokens(path)
    path.write_text(second_line)
    path.chmod(0o606)
    assert await name_of(auth, first) == "first"
    path.chmod(0o600)
    assert await name_of(auth, first) is None


async def test_tokens_may_be_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, first_line), (second, second_line) = make_token("first"), make_token("second")
    monkeypatch.setenv("DELTA_MCP_TOKENS", f"{first_line}; {second_line}")
    auth = StaticTokens()
    assert (await name_of(auth, first), await name_of(auth, second)) == ("first", "second")
    monkeypatch.delenv("DELTA_MCP_TOKENS")
    with pytest.raises(ConfigurationError, match="DELTA_MCP_TOKENS has no tokens"):
        StaticTokens()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing",
        "robot",
        "robot secret-token",
        f"robot sha256:{'a' * 63}",
        f"robot sha256:{'A' * 64}",
        f"robot md5:{'a' * 64}",
        f"ro/bot sha256:{'a' * 64}",
    ],
)
def test_lines_that_are_wrong_are_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"delta-mcp token NAME makes one\.$"):
        read_tokens(text, "tokens")


@pytest.mark.parametrize("name", ["", "two words", "a\nb", "#a", "é", "a" * 101])
def test_a_name_that_cannot_be_in_a_line_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="name"):
        make_token(name)


def test_a_scope_that_cannot_be_in_a_line_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="scope"):
        make_token("robot", ["two words"])


def test_tokens_cannot_be_guessed() -> None:
    made = {make_token("robot")[0] for _ in range(100)}
    assert len(made) == 100
    assert all(len(token.removeprefix("dmcp_")) == 43 for token in made)


def test_a_file_that_everybody_may_write_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens"
    write(path, make_token("robot")[1])
    path.chmod(0o660)
    StaticTokens(path)
    assert "its group may write" in caplog.text
    path.chmod(0o606)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        StaticTokens(path)
    with pytest.raises(ConfigurationError, match="No such file"):
        StaticTokens(tmp_path / "nowhere")


# The command


async def test_the_command_prints_a_token_once_and_adds_its_digest_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("# mine")
    path.chmod(0o600)
    made = [run("token", name, "--scope", "a", "--scope", "b", "--file", "tokens", cwd=tmp_path) for name in "xy"]
    assert [done.code for done in made] == [0, 0]
    assert len(path.read_text().splitlines()) == 3
    auth = StaticTokens(path)
    for name, done in zip("xy", made, strict=True):
        token = done.out.strip()
        assert token not in path.read_text() + done.err
        assert await name_of(auth, token) == name


def test_the_command_makes_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    assert run("token", "robot", "--file", "tokens", cwd=tmp_path).code == 0
    assert (tmp_path / "tokens").stat().st_mode & 0o777 == 0o600


async def test_without_a_file_the_command_prints_the_line(tmp_path: Path) -> None:
    done = run("token", "robot", "--scope", "read", cwd=tmp_path)
    [known] = read_tokens(done.err.splitlines()[-1], "stderr")
    assert known.principal.scopes == {"read"}
    assert done.out.strip().startswith("dmcp_")


def test_the_command_says_what_is_wrong_in_one_sentence(tmp_path: Path) -> None:
    for words in (["two words"], ["robot", "--scope", "a b"], ["robot", "--file", str(tmp_path)]):
        assert_one_sentence(run("token", *words, cwd=tmp_path), 2)
