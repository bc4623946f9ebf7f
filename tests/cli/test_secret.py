"""Secrets: `delta-mcp secret` keeps them in the keyring, and a gateway shows them to nobody."""

import contextlib
import http.server
import io
import json
import os
import threading
from pathlib import Path

import pytest

from deltamcp import connect
from deltamcp.cli import main
from deltamcp.cli.verbs import token
from deltamcp.errors import DeltaError
from tests.support.command_line import assert_one_sentence, run
from tests.support.paths import FORKED_PROGRAM
from tests.support.program import running_program

BACKEND = """
import json, os, pathlib
from keyring.backend import KeyringBackend

class Keyring(KeyringBackend):
    priority = 1
    path = pathlib.Path(os.environ["KEYRING_FILE"])
    def _read(self):
        return json.loads(self.path.read_text()) if self.path.exists() else {}
    def get_password(self, service, name):
        return self._read().get(f"{service}/{name}")
    def set_password(self, service, name, secret):
        self.path.write_text(json.dumps(self._read() | {f"{service}/{name}": secret}))
    def delete_password(self, service, name):
        kept = self._read()
        del kept[f"{service}/{name}"]
        self.path.write_text(json.dumps(kept))
"""
CANARY = "canary-5f2d/9e+81 b"


@pytest.fixture
def keyring(tmp_path):
    """The environment of a user with a keyring."""
    (tmp_path / "file_keyring.py").write_text(BACKEND)
    return {
        "PYTHONPATH": str(tmp_path),
        "PYTHON_KEYRING_BACKEND": "file_keyring.Keyring",
        "KEYRING_FILE": str(tmp_path / "keyring.json"),
        **{f"XDG_{name}_HOME": str(tmp_path / "own" / name) for name in ("CONFIG", "CACHE", "STATE")},
    }


def test_a_secret_comes_from_stdin_and_goes_again(tmp_path, keyring):
    done = run("secret", "set", "github", cwd=tmp_path, stdin=b"s3cret word\n", **keyring)
    assert (done.code, done.out) == (0, "Your keyring has it: write ${keyring:github} in the configuration\n")
    assert json.loads(Path(keyring["KEYRING_FILE"]).read_text()) == {"delta-mcp secrets/github": "s3cret word"}
    assert run("secret", "delete", "github", cwd=tmp_path, **keyring).out == "github is deleted\n"
    assert run("secret", "delete", "github", cwd=tmp_path, **keyring).out == "There was no secret github\n"
    assert json.loads(Path(keyring["KEYRING_FILE"]).read_text()) == {}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_at_a_terminal_it_is_asked_for_without_an_echo(monkeypatch, capsys):
    kept: dict[str, str] = {}
    monkeypatch.setattr("sys.stdin", Terminal("never read"))
    monkeypatch.setattr("getpass.getpass", lambda prompt: f"typed after {prompt}")
    monkeypatch.setattr(token, "save_secret", kept.__setitem__)
    main.main(["secret", "set", "github"])
    assert kept == {"github": "typed after github: "}
    assert "typed" not in capsys.readouterr().out


def test_without_a_keyring_it_is_told_what_to_do(tmp_path):
    done = run("secret", "set", "x", cwd=tmp_path, stdin=b"y", PYTHON_KEYRING_BACKEND="keyring.backends.null.Keyring")
    assert_one_sentence(done, 2)
    assert "There is no keyring here that keeps secrets" in done.err
    assert_one_sentence(run("secret", "set", "x", cwd=tmp_path, stdin=b"\n"), 2)


SERVER = f"""
import os, sys
from deltamcp import DeltaServer
server = DeltaServer("s")
print("I have", os.environ["KEY"], sys.argv, file=sys.stderr)

@server.tool(description="Compares.")
def has_key() -> bool:
    return os.environ["KEY"] == {CANARY!r}

@server.tool(description="Ends.")
def end() -> None:
    print("The end of", os.environ["KEY"], file=sys.stderr, flush=True)
    os._exit(3)
"""


CRASH = "import os; raise SystemExit(os.environ['KEY'])"


class Refuser(http.server.BaseHTTPRequestHandler):
    """Refuses every request, and says what it was sent."""

    def do_POST(self) -> None:
        body = f"no: {self.headers['X-Key']} {self.path}".encode()
        self.send_response(500)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def refuser():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuser) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


async def test_a_secret_is_in_no_log_no_error_no_file_and_no_command_line_of_ours(tmp_path, keyring, refuser):
    run("secret", "set", "key", cwd=tmp_path, stdin=CANARY.encode(), **keyring)
    (tmp_path / "server.py").write_text(SERVER)
    serve = ["serve", str(tmp_path / "server.py")]
    servers = {
        "kept": {"command": str(FORKED_PROGRAM), "args": serve, "env": {"KEY": "${keyring:key}"}},
        "given": {"command": str(FORKED_PROGRAM), "args": serve, "env": {"KEY": "${FROM_HOST}"}},
        "crashing": {"command": "python3", "args": ["-c", CRASH], "env": {"KEY": "${keyring:key}"}},
        "refusing": {"url": f"{refuser}/mcp", "headers": {"X-Key": "${FROM_HOST}"}},
        "path": {"url": f"{refuser}/k3y-0123456789abcdef/mcp?api_key=k3y-fedcba9876543210"},
        "lacking": {"command": "x", "env": {"KEY": "${keyring:other}"}},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    command = [str(FORKED_PROGRAM), "--debug", "gateway", "mcp.json", "--http", "127.0.0.1:0", "--log-level", "debug"]
    errors = []
    environment = {**os.environ, **keyring, "FROM_HOST": CANARY}
    with running_program([*command, "--disclosure", "full"], tmp_path, env=environment) as program:
        url = program.wait_for(r"(http://\S+) \(Ctrl-C")[1]
        program.wait_for("lacking is left out: it needs the secret other, which your keyring does not have")
        async with connect(url, progressive=False) as client:
            assert str(await client.call("kept_has_key")).lower() == "true"
            assert str(await client.call("given_has_key")).lower() == "true"
            for name in ("kept_end", "given_end"):
                with pytest.raises(DeltaError) as raised:
                    await client.call(name)
                errors.append(str(raised.value))
        lines = [path.read_bytes() for path in Path("/proc").glob(f"{program.process.pid}/task/*/cmdline")]
    files = [path for path in (tmp_path / "own").rglob("*") if path.is_file()]
    assert files and lines, "there is a cache to look into, and a command line"
    shown = "\n".join([program.text(), *errors, *(one.read_text(errors="replace") for one in files), str(lines)])
    assert "refusing" in shown and "crashing" in shown and "path" in shown
    for text in (CANARY, "canary-5f2d", "k3y-0123456789abcdef", "k3y-fedcba9876543210"):
        assert text not in shown
