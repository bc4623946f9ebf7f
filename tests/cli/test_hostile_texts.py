"""Every command and both servers on a terminal, with hostile texts wherever others can put a text.

Nothing but what the library itself writes may steer the terminal or begin a line. In what a user asks a server for,
such as the result of a call, line feeds are the server's; nothing else of these texts is.
"""

import asyncio
import contextlib
import datetime
import http.client
import json
import re
import socket
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.hostile.http2 import PREFACE, FrameType, Http2Connection, write_frame
from deltamcp.cli.main import VERBS
from deltamcp.gateway.config import UpstreamConfig
from deltamcp.gateway.ledger_figures import LedgerFile, LedgerKey, Usage
from deltamcp.gateway.trust.approvals import Approvals
from deltamcp.upstreams.listing import UpstreamListing
from tests.support.command_line import run_all_on_terminal, serving_on_terminal
from tests.support.conditions import HANG_SECONDS
from tests.support.fake_http import Fake, serve_fake
from tests.support.grpc_peer import tool_request
from tests.support.hostile_server import FORGED, HOSTILE_TEXTS, NASTY, NASTY_NAMES, command, serve_over_http
from tests.support.login_issuer import LoginIssuer, as_json, serve_login_issuer
from tests.support.paths import FORKED_PROGRAM, FORKED_PYTHON
from tests.support.processes import served_command

SURROGATE = f"\ud800{FORGED}"
DRAWN = re.compile(r"\r?\x1b\[[0-9;]*[mAK]|\x1b\[\?25[lh]")
"""The colours of our tables, and what our progress bars draw with."""
RIGHT = f"right\n{FORGED}.json"


def assert_harmless(text: str, line_start: str = r"^[ \t]*") -> None:
    """Checks what a terminal was sent."""
    for name, hostile in HOSTILE_TEXTS.items():
        assert hostile in "\r\n" or hostile not in text, f"{name}: {text!r}"
    plain = DRAWN.sub("", text).replace("\r\n", "\n")
    steering = {char for char in plain if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n", "\t"}
    assert not steering, f"{steering!r}: {text!r}"
    found = re.search(line_start + FORGED, plain, re.MULTILINE)
    assert not found, plain[max(0, found.start() - 200) : found.end() + 100]


def test_the_judge_finds_every_hostile_text():
    for hostile in [*NASTY_NAMES, SURROGATE]:
        with pytest.raises(AssertionError):
            assert_harmless(f"a line{hostile}\r\n")
    assert_harmless("a line\r\n\x1b[1mof ours\x1b[0m FORGED\r\n")


# Commands


def escaped(text: str) -> str:
    """A text as JSON has it, which TOML reads too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_files(folder: Path) -> None:
    """Writes what users have, as somebody wrote it who wishes them ill."""
    names = [*NASTY_NAMES, SURROGATE]
    program, *arguments = command("nasty_strings")
    nasty = {"command": program, "args": arguments}
    entries: dict[str, Any] = {"go": nasty}
    entries |= {name: {"command": f"/none/{name}", "args": [name], "env": {name: name}} for name in names}
    entries |= {"url": {"url": NASTY}, "variable": {"command": f"${{{NASTY}}}"}, "type": {"type": NASTY}, "none": NASTY}
    document = json.dumps({"mcpServers": entries})
    for path in ("mcp.json", ".cursor/mcp.json", ".claude.json"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(document)
    rules = [f"mcp__{name}__{name}" for name in ("go", *names)]
    settings = {"permissions": {"allow": rules[:1], "ask": rules[:1], "deny": rules}}
    (folder / ".claude").mkdir()
    (folder / ".claude/settings.json").write_text(json.dumps(settings))
    (folder / "go.json").write_text(json.dumps({"mcpServers": {"go": nasty}}))
    forging = ["\n" + FORGED, "\r" + FORGED, "\x1b[2J" + FORGED]
    faults = [f"{escaped(name)} = {escaped(NASTY)}" for name in forging]
    servers = [f"[servers.{escaped(name)}]\n{escaped(name)} = 1" for name in forging]
    (folder / "faults.toml").write_text("\n".join([*faults, *servers]))
    operations = [{"id": name, "summary": name, NASTY: NASTY, "handler": {"type": NASTY}} for name in names]
    (folder / "operations.json").write_text(json.dumps({"title": NASTY, "operations": operations}))
    (folder / RIGHT).write_text(json.dumps({"operations": []}))
    (folder / "fails.py").write_text(f"raise RuntimeError({NASTY + SURROGATE!a})")
    (folder / "crashes.py").write_text(CRASHES.format(text=NASTY + SURROGATE))
    (folder / "server.py").write_text(SERVER.format(name=f"shop{NASTY}"))


CRASHES = """
from contextlib import asynccontextmanager
from deltamcp import DeltaServer

@asynccontextmanager
async def lifespan(server):
    raise RuntimeError({text!a})
    yield

server = DeltaServer("x", lifespan=lifespan)
"""
SERVER = """
import logging, threading, warnings
from deltamcp import DeltaServer

server = DeltaServer({name!a}, {name!a})


@server.tool
async def fail(text: str) -> str:
    raise RuntimeError(text + "\\ud800FORGED") from ValueError(text)


@server.tool
def say(text: str) -> str:
    logging.getLogger("mine").warning(text)
    logging.getLogger("mine").warning("%d", text)
    logging.getLogger(text).warning("x", stack_info=True)
    warnings.warn(text)
    thread = threading.Thread(target=fail_in_thread, args=(text,), name=text)
    thread.start()
    thread.join()
    return "said"


def fail_in_thread(text):
    raise RuntimeError(text)
"""


def write_state(state: Path) -> None:
    """Writes what a gateway has counted, and what waits to be approved."""
    day = datetime.date.today().isoformat()
    rows = {LedgerKey(day, name, name): Usage(1, 0, 0, 10, 4) for name in NASTY_NAMES}
    LedgerFile(state / "delta-mcp/ledger.sqlite").add(rows)
    approvals = Approvals(state / "delta-mcp/approvals")
    for name in ("go", *NASTY_NAMES[20:26]):
        config = UpstreamConfig(name=name, entry={"command": name})
        for text in ("", NASTY):
            tools = [{"name": tool, "description": text, "inputSchema": {"title": text}} for tool in NASTY_NAMES]
            approvals.review(config, UpstreamListing({"instructions": text}, text or "2025-11-25", tools))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("home")
    write_files(made)
    write_state(made / "state")
    return made


def own_variables(folder: Path) -> dict[str, str]:
    """Variables by which the program finds nothing outside of a folder, and no keyring."""
    return {
        "HOME": str(folder),
        **{f"XDG_{purpose.upper()}_HOME": str(folder / purpose) for purpose in ("state", "cache", "config")},
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        "DELTA_MCP_TOKEN": "",
        "COLUMNS": "100000",  # else a long line is continued on the next, whatever it has
    }


@pytest.fixture(scope="module")
def environment(home: Path) -> dict[str, str]:
    return own_variables(home)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the hostile server listens."""
    with serve_over_http("nasty_strings") as url:
        yield url


@pytest.fixture(scope="module")
def gateway_that_runs(home: Path, environment: dict[str, str]) -> Iterator[None]:
    """A gateway of the user who runs the commands, with the hostile server behind it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with served_command([str(FORKED_PROGRAM), "gateway", str(home / "mcp.json")]):
            yield


SERVED = "SERVED"
"""Stands for the words that start the hostile server."""
ADDRESS = "ADDRESS"
LINE_FEED = f"\n{FORGED}"
COMMANDS: list[list[list[str]]] = [
    [["list", SERVED], ["list", "--as-host", SERVED], ["list", "--json", SERVED]],
    [["list", "go.json#none"], ["list", f"mcp.json#{LINE_FEED}"], ["list", "mcp.json#url"], ["list", "mcp.json#none"]],
    [["describe", SERVED, "go"], ["describe", "--json", SERVED, "go"], ["describe", SERVED, FORGED]],
    [["describe", SERVED, LINE_FEED]],
    [["call", SERVED, "go"], ["call", "--json", SERVED, "go"], ["call", SERVED, "go", "x=1"]],
    [["call", SERVED, "refuse"], ["call", "--debug", SERVED, "refuse"], ["call", SERVED, "fail"]],
    [["call", SERVED, FORGED], ["call", ADDRESS, "go"]],
    [["redeem", "--status", ADDRESS, "t"], ["redeem", "--status", "--json", ADDRESS, "t"]],
    [["redeem", "--cancel", ADDRESS, "t"]],
    [["resources", SERVED], ["resources", "--json", SERVED]],
    [["read", SERVED, "x://go"], ["read", SERVED, f"x://{FORGED}"]],
    [["prompts", SERVED], ["prompts", "--json", SERVED]],
    [
        ["prompt", SERVED, "go"],
        ["prompt", SERVED, "refuse"],
        ["prompt", SERVED, FORGED],
        ["prompt", SERVED, "go", "x=1"],
    ],
    [["login", ADDRESS], ["logout", ADDRESS]],
    [["secret", "set", NASTY], ["secret", "delete", LINE_FEED]],
    [["bench", "--rounds", "1", "--tool", "go", SERVED]],
    [["audit", "mcp.json"], ["audit", "--json", "go.json"], ["audit", "mcp.json", "--only", FORGED]],
    [["gateway", "--check", "mcp.json"]],
    [["gateway", "--check", "faults.toml"], ["gateway", "--only", FORGED, "mcp.json"]],
    [
        ["install", "cursor", "--dry-run"],
        ["install", "claude-code", "--dry-run"],
        ["install", "cursor", "--only", FORGED],
    ],
    [["serve", "operations.json"], ["serve", "fails.py"], ["serve", "--debug", "fails.py"]],
    [["serve", "crashes.py"]],
    [["serve", "--debug", "crashes.py"]],
    [["approve"], ["approve", "go"], ["approve", FORGED], ["approve", "go", FORGED]],
    [["worker", "fails.py"], ["dev", f"none{LINE_FEED}.py"]],
    [["stats"], ["stats", "--json"], ["stats", "--by", "upstream"]],
    [["token", LINE_FEED], ["token", "me", "--scope", NASTY]],
    [["validate", "operations.json"], ["validate", "--json", "operations.json"], ["validate", RIGHT]],
    [["validate", "operations.json", RIGHT], ["validate", "--none", RIGHT]],
    [["completion", "bash"]],
    [["install", "cursor", "--yes"], ["install", "cursor", "--yes"], ["uninstall", "cursor", "--yes"]],
    [["add", NASTY, "--", "x"], ["add", "x", "--dry-run", "--", f"/none/{LINE_FEED}"], ["remove", LINE_FEED]],
    [["openapi", "operations.json"], ["openapi", LINE_FEED]],
    [["new", "server", LINE_FEED], ["new", "gateway", f"folder/{LINE_FEED}"]],
]
COMMANDS_OF_A_GATEWAY: list[list[str]] = [
    ["restart", "go"],
    ["restart", FORGED],
    ["status"],
    ["status", "--json"],
    ["logs"],
    ["logs", "go"],
    ["logs", LINE_FEED],
    ["cancel", FORGED],
    ["dashboard", FORGED],
]
"""What asks a gateway that runs."""


def test_every_command_is_run():
    commands = [words for commands in COMMANDS for words in commands]
    assert {words[0] for words in [*commands, *COMMANDS_OF_A_GATEWAY]} == {*VERBS}


def _label(commands: list[list[str]]) -> str:
    return "; ".join(" ".join(re.findall(r"^[\w.:/-]+$", " ".join(words[:2]))) or words[0] for words in commands)


@pytest.mark.parametrize("commands", COMMANDS, ids=_label)
def test_no_command_lets_others_steer_the_terminal_or_forge_a_line(commands, home, environment, address):
    places = {SERVED: command("nasty_strings"), ADDRESS: [address]}
    said = [[part for word in words for part in places.get(word, [word])] for words in commands]
    seen = run_all_on_terminal(said, cwd=home, typed=b"\x04" * 4, **environment)

    assert FORGED in seen or commands[0][0] in ("login", "secret", "completion"), seen
    # The lines of a definition's description begin with a space.
    assert_harmless(seen.replace("^D\x08\x08", ""), r"^" if commands[0][0] == "describe" else r"^[ \t]*")


@pytest.mark.usefixtures("gateway_that_runs")
def test_a_gateway_that_runs_lets_nobody_steer_the_terminal_or_forge_a_line(home, environment):
    seen = run_all_on_terminal(COMMANDS_OF_A_GATEWAY, cwd=home, typed=b"\x04" * 4, **environment)
    assert FORGED in seen, seen
    assert_harmless(seen.replace("^D\x08\x08", ""))


# Logins

REFUSAL = {"error": NASTY, "error_description": NASTY, "error_uri": NASTY}


def refuse_at(path: str) -> Callable[[LoginIssuer], None]:
    async def refuse(asked: Any) -> tuple[int, dict[str, str], bytes]:
        return as_json(REFUSAL, 400)

    return lambda issuer: issuer.routes.update({path: refuse})


def show_codes(issuer: LoginIssuer) -> None:
    async def start(asked: Any) -> tuple[int, dict[str, str], bytes]:
        page = f"{issuer.url}/{NASTY}"
        codes = {"device_code": NASTY, "user_code": NASTY, "verification_uri": page, "verification_uri_complete": page}
        return as_json({**codes, "expires_in": 600, "interval": 0.01})

    issuer.routes["/device"] = start


ISSUERS: dict[str, Callable[[LoginIssuer], None]] = {
    "registration": refuse_at("/register"),
    "token": refuse_at("/token"),
    "revocation": refuse_at("/revoke"),
    "redirect": lambda issuer: issuer.redirect_with.update({**REFUSAL, "code": None}),
    "metadata": lambda issuer: issuer.metadata.update({"issuer": NASTY}),
    "endpoint": lambda issuer: issuer.metadata.update({"authorization_endpoint": f"{issuer.url}/{NASTY}"}),
    "scope": lambda issuer: issuer.token_fields.update({"scope": NASTY, "token_type": NASTY}),
    "device": refuse_at("/device"),
    "codes": show_codes,
}
"""What an authorization server says wrongly, by where."""


@pytest.mark.parametrize("place", ISSUERS)
async def test_no_authorization_server_steers_the_terminal_or_forges_a_line(place, tmp_path):
    browser = tmp_path / "browser.py"
    browser.write_text("import sys, urllib.request as web; web.urlopen(sys.argv[1], timeout=60).read()")
    variables = {**own_variables(tmp_path), "BROWSER": f"{FORKED_PYTHON} {browser} %s"}
    async with serve_login_issuer() as issuer, serve_fake(Fake()) as fake:
        issuer.protect(fake, scope="read")
        ISSUERS[place](issuer)
        device = []
        if place in ("device", "codes"):
            issuer.metadata["device_authorization_endpoint"] = f"{issuer.url}/device"
            device = ["--device"]
        commands = [["login", *device, fake.url], ["list", fake.url], ["logout", fake.url]]
        seen = await asyncio.to_thread(run_all_on_terminal, commands, cwd=tmp_path, typed=b"n\n", **variables)
    assert fake.url in seen
    assert_harmless(seen)


# Servers


def requests(tools: dict[str, Any], texts: list[str]) -> list[bytes]:
    """What a hostile client sends: all texts at all places, and what is no request at all."""
    about = {"name": NASTY, "title": NASTY, "version": NASTY}
    sent: list[Any] = [
        {
            "method": "initialize",
            "params": {"protocolVersion": NASTY, "capabilities": {NASTY: {}}, "clientInfo": about},
        },
        {"method": "tools/list", "params": {"cursor": NASTY}},
        {"method": "resources/read", "params": {"uri": NASTY}},
        {"method": "prompts/get", "params": {"name": NASTY, "arguments": {NASTY: NASTY}}},
        {"method": "completion/complete", "params": {"ref": {"type": NASTY}, "argument": {NASTY: NASTY}}},
        {"method": "logging/setLevel", "params": {"level": NASTY}},
        {"method": NASTY, "params": {NASTY: NASTY}},
        *({"method": "tools/call", "params": {"name": text, "arguments": {text: text}}} for text in texts),
        *({"method": "tools/call", "params": {"name": name, "arguments": sent}} for name, sent in tools.items()),
    ]
    messages = [json.dumps({"jsonrpc": "2.0", "id": number, **one}) for number, one in enumerate(sent)]
    return [message.encode() for message in messages]


OWN_TOOLS = {"fail": {"text": NASTY}, "say": {"text": NASTY}}
GATEWAY_TOOLS = {
    "discover": {"query": NASTY},
    "get_schema": {"operations": [NASTY]},
    "execute": {"operation": "go", "arguments": {}},
    "query": {"operation": NASTY, "arguments": {NASTY: NASTY}},
}
SERVERS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "serve": (["serve", "server.py"], OWN_TOOLS),
    "gateway": (["gateway", "--no-ledger", "go.json"], GATEWAY_TOOLS),
}
SERVED_TEXTS = [*NASTY_NAMES, SURROGATE]
LINE = re.compile(r"(DEBUG|INFO|WARNING|ERROR) ((?!: ).)+: |Serving ")
"""A line of the log, or the sentence that says where the server listens."""


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("verb", SERVERS)
def test_no_peer_of_a_server_over_stdio_steers_the_terminal_or_forges_a_line(verb, log_format, home, environment):
    words, tools = SERVERS[verb]
    options = ["--log-level", "debug", "--log-format", log_format]
    with serving_on_terminal(words[0], *options, *words[1:], cwd=home, **environment) as server:
        for line in (b"\x1b[2J\nFORGED\x9b\xff", NASTY.encode()):
            server.stdin.write(line + b"\n")
        sent = requests(tools, SERVED_TEXTS)
        server.stdin.write(b"\n".join(sent) + b"\n")
        server.stdin.flush()
        wanted = {number for number, one in enumerate(sent) if b"ud800" not in one}  # which is no JSON
        while wanted:
            answer = json.loads(server.stdout.readline())
            wanted.discard(answer.get("id") if "method" not in answer else None)
        check_log(server.end().text, log_format)


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("verb", SERVERS)
def test_no_peer_of_a_server_over_http_steers_the_terminal_or_forges_a_line(verb, log_format, home, environment):
    words, tools = SERVERS[verb]
    options = ["--http", "127.0.0.1:0", "--request-ids", "--log-level", "debug", "--log-format", log_format]
    with serving_on_terminal(words[0], *options, *words[1:], cwd=home, **environment) as server:
        port = int(server.wait_for(r"http://127.0.0.1:(\d+)/mcp")[1])
        for bad in (b"\x1b[2J FORGED\r\n\r\n", b"GET /\x9b2J%0aFORGED HTTP/1.1\r\nHost: \x1b]0;x\x07\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port)) as raw:
                raw.sendall(bad)
                raw.settimeout(HANG_SECONDS)
                raw.recv(65536)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
        hostile = {"X-Request-Id": "a\x9b2J", "User-Agent": "\x9d52;c;x\x9c", "Authorization": "Bearer \x9b"}
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **hostile}
        start = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": NASTY, "version": NASTY}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": start})
        connection.request("POST", "/mcp", body, headers)
        begun = connection.getresponse()
        begun.read()
        session = {"Mcp-Session-Id": begun.headers["Mcp-Session-Id"]}
        for one in [*requests(tools, SERVED_TEXTS), NASTY.encode(), b"\xff"]:
            connection.request("POST", "/mcp", one, {**headers, **session})
            connection.getresponse().read()
        connection.close()
        check_log(server.end().text, log_format)


CALL = "/mcplite.MCPLite/CallTool"
GRPC_FIELDS = ("grpc-timeout", "grpc-encoding", "authorization", "user-agent", "x-request-id", "x-text-bin")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_client_of_grpc_steers_the_terminal_or_forges_a_line(log_format, home, environment):
    options = ["--grpc", "127.0.0.1:0", "--request-ids", "--log-level", "debug", "--log-format", log_format]
    with serving_on_terminal("serve", *options, "server.py", cwd=home, **environment) as server:
        port = int(server.wait_for(r"grpc://127.0.0.1:(\d+)")[1])
        for name, text in [("fail", NASTY), ("say", NASTY), *((text, text) for text in NASTY_NAMES)]:
            call_over_grpc(port, CALL, tool_request(name, {"text": text}).SerializeToString())
        plain = tool_request("say", {"text": "x"}).SerializeToString()
        nasty = NASTY.encode().decode("latin-1")
        for field in GRPC_FIELDS:
            call_over_grpc(port, CALL, plain, [(field, nasty)])
        call_over_grpc(port, f"/{nasty}", plain)
        for begin in (
            NASTY.encode(),
            PREFACE + NASTY.encode(),
            PREFACE + write_frame(FrameType.HEADERS, 4, 1, b"\xff"),
        ):
            with socket.create_connection(("127.0.0.1", port)) as raw:
                raw.sendall(begin)
                raw.shutdown(socket.SHUT_WR)
                raw.settimeout(HANG_SECONDS)
                with contextlib.suppress(ConnectionResetError):
                    while raw.recv(65536):
                        pass
        check_log(server.end().text, log_format)


def call_over_grpc(port: int, path: str, message: bytes, more: Sequence[tuple[str, str]] = ()) -> None:
    with Http2Connection(port, "127.0.0.1", seconds=HANG_SECONDS) as connection:
        assert connection.wait(connection.call(path, message, more)).status != "no answer"


def check_log(text: str, log_format: str) -> None:
    assert_harmless(text)
    lines = text.replace("\r\n", "\n").splitlines()
    assert any(FORGED in line for line in lines), text
    for line in lines:
        if log_format == "json":
            assert isinstance(json.loads(line), dict)
        else:
            assert LINE.match(line), line
