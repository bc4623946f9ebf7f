"""No secret of a configuration reaches a caller, a log or a file, however a server repeats it."""

import asyncio
import base64
import json
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
import pytest

from deltamcp import connect
from deltamcp.errors import DeltaError
from deltamcp.gateway.config import read_gateway_file
from deltamcp.gateway.gateway import Gateway
from deltamcp.gateway.ledger import Ledger
from deltamcp.gateway.ledger_figures import LedgerFile
from deltamcp.transports.http.server import make_server
from tests.support import echoing_server
from tests.support.fake_http import Fake, FakeConnection, FakeRequest, serve_fake
from tests.support.http_server import serve_uvicorn
from tests.support.raw_client import META, RawClient, raw_client
from tests.support.secret_encodings import ENCODINGS

STATUS = "delta-mcp://gateway/upstreams"
LOCAL_COUNT, REMOTE_COUNT = 20, 10


def core(number: int) -> str:
    return f"kE{number:02}yQ"


def secret(number: int) -> str:
    """A text that every encoding but base64 writes in another way, around a core that they leave alone."""
    return f'/{core(number)}+&"ß'


def leaks(*texts: str) -> list[str]:
    """The cores that are in a text, also inside of base64."""
    text = " ".join(texts)
    found = []
    for number in range(LOCAL_COUNT + REMOTE_COUNT):
        own = core(number).encode()
        in_base64 = [
            base64.b64encode(b"\0" * before + own).decode()[(before * 8 + 5) // 6 :][:6] for before in range(3)
        ]
        if any(spelling in text for spelling in (core(number), *in_base64)):
            found.append(core(number))
    return found


def spellings(numbers: Iterable[int]) -> list[str]:
    """Every secret in every encoding, alone and inside of a longer text."""
    return [
        encode(f"{around}{secret(one)}{around}") for one in numbers for encode in ENCODINGS.values() for around in "x"
    ]


def in_url(number: int) -> str:
    return quote(secret(number), safe="")


def local_entry(texts: Path) -> dict[str, Any]:
    return {
        "command": sys.executable,
        "args": [
            *(echoing_server.__file__, str(texts)),
            *("--api-key", secret(0), f"--token={secret(1)}", "-e", f"INNER={secret(2)}"),
            *("--header", f"X-Any: {secret(3)}", f"https://me:{in_url(4)}@db.example/?p={in_url(5)}", "${POSITION}"),
        ],
        "env": {
            "GITHUB_PAT": secret(7),
            "DATABASE_URL": f"postgres://{in_url(8)}:{in_url(9)}@db/x?sslkey={in_url(10)}",
            "DB_PASS": secret(11),
            "ANYTHING": secret(12),
            "HEADERS": json.dumps({"Authorization": f"Bearer {secret(13)}", "X-Other": secret(14)}),
            "DSN": f"Server=db;Password={secret(15)};User=x",
            "FROM_VARIABLE": "${SOURCE}",
            "FROM_KEYRING": "${keyring:vault}",
            "PART": "before-${PART_SOURCE}-after",
            "BASIC": f"Basic {base64.b64encode(f'me:{secret(19)}'.encode()).decode()}",
        },
    }


def remote_entry(url: str) -> dict[str, Any]:
    scheme, _, rest = url.partition("://")
    return {
        "url": f"{scheme}://{in_url(20)}:{in_url(21)}@{rest}?api_key={in_url(22)}&tenant={in_url(23)}",
        "headers": {
            "Authorization": "Bearer ${REMOTE}",
            "X-Api-Key": core(25) * 3,
            "Cookie": f"a=b; session={core(26) * 3}",
            "X-Org": core(27) * 3,
            "X-Basic": f"Basic {base64.b64encode(f'me:{secret(28)}'.encode()).decode()}",
            "X-Keyring": "${keyring:remote}",
        },
    }


def remote_texts() -> list[str]:
    in_headers = [encode(core(one) * 3) for one in (24, 25, 26, 27, 29) for encode in ENCODINGS.values()]
    return [*spellings([20, 21, 22, 23, 28]), *in_headers]


@pytest.fixture(autouse=True)
def sources(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"POSITION": secret(6), "SOURCE": secret(16), "PART_SOURCE": secret(18)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("REMOTE", core(24) * 3)
    keyring = {"vault": secret(17), "remote": core(29) * 3}
    monkeypatch.setattr("deltamcp.hosts.files.load_secret", keyring.get)


def make_gateway(
    folder: Path, entry: dict[str, Any], of_server: dict[str, Any] | None = None, **options: Any
) -> Gateway:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"echo": entry}}))
    config = read_gateway_file(file).config
    upstreams = [msgspec.structs.replace(one, **{"promise": "never", **(of_server or {})}) for one in config.upstreams]
    config = msgspec.structs.replace(config, upstreams=upstreams, **{"disclosure": "full", **options})
    return Gateway(config, ledger=Ledger(LedgerFile()))


async def shown(client: RawClient, method: str, **params: Any) -> str:
    """Everything that the server sends until it answers a request, questions included."""
    client.send(id="r", method=method, params=params)
    messages: list[dict[str, Any]] = []
    while not messages or messages[-1].get("id") != "r":
        messages.append(await client.receive())
        if "method" in messages[-1] and "id" in messages[-1]:
            client.send(id=messages[-1]["id"], result={"action": "cancel"})
    return json.dumps(messages)


def files(folder: Path) -> str:
    """What the gateway has written."""
    written = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("mcp.json", "texts.json")]
    assert any("catalog" in path.name for path in written) and any("ledger" in path.name for path in written)
    return " ".join(path.read_bytes().decode("utf-8", "replace") for path in written)


def local_gateway(folder: Path, **options: Any) -> Gateway:
    texts = folder / "texts.json"
    texts.write_text(json.dumps(spellings(range(LOCAL_COUNT))))
    return make_gateway(folder, local_entry(texts), **options)


async def test_a_secret_that_a_server_repeats_is_found_by_this_test(tmp_path: Path) -> None:
    async with raw_client(local_gateway(tmp_path).server) as client:
        await client.handshake(elicitation={})
        for method, params in RESULTS:
            assert len(leaks(await shown(client, method, **params))) == LOCAL_COUNT, "results are data"


RESULTS: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "result", "arguments": {}}),
    ("resources/read", {"uri": "echo://one"}),
    ("prompts/get", {"name": "one"}),
]
OTHERS: list[tuple[str, dict[str, Any]]] = [
    *((f"{kind}/list", {}) for kind in ("tools", "resources", "resources/templates", "prompts")),
    *(("tools/call", {"name": name, "arguments": {}}) for name in echoing_server.TOOLS if name != "result"),
    ("tools/call", {"name": "progress", "arguments": {}, "_meta": {"progressToken": 1}}),
    ("resources/read", {"uri": "echo://x/2"}),
    ("resources/read", {"uri": STATUS}),
    ("tools/call", {"name": "nobody's", "arguments": {}}),
]


@pytest.mark.parametrize("redact_results", [False, True])
async def test_no_channel_shows_a_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, redact_results: bool
) -> None:
    caplog.set_level(logging.DEBUG, "deltamcp")
    caplog.set_level(logging.INFO, "deltamcp.calls")
    gateway = local_gateway(tmp_path, redact_results=redact_results)
    async with raw_client(gateway.server) as client:
        introduced = await client.handshake(elicitation={})
        assert leaks(json.dumps(introduced)) == []
        await client.call("logging/setLevel", level="debug")
        for method, params in OTHERS:
            assert leaks(await shown(client, method, **params)) == [], (method, params)
        for method, params in RESULTS:
            assert leaks(await shown(client, method, **params)) == ([] if redact_results else [*map(core, range(20))])
        tools = json.loads(await shown(client, "tools/list"))[-1]["result"]["tools"]
        offered = [one["name"] for one in tools if one["name"] != "continue"]
        assert offered == [*echoing_server.TOOLS], "the one that a secret names is left out"
    assert "echo: " in caplog.text and leaks(caplog.text) == []
    assert leaks(files(tmp_path)) == []


async def test_no_page_and_no_caller_over_http_is_shown_a_secret_or_what_is_on_stderr(tmp_path: Path) -> None:
    gateway = local_gateway(tmp_path)
    async with (
        serve_uvicorn(make_server(gateway.server.engine, port=0, metrics=True)) as address,
        httpx2.AsyncClient() as web,
        connect(f"{address}/mcp", progressive=False) as client,
    ):
        for name in ("error", "leave"):
            with pytest.raises(DeltaError) as failed:
                await client.call(name)
            assert leaks(str(failed.value)) == []
        (status,) = await client.read_resource(STATUS)
        (described,) = json.loads(status["text"])
        assert described["lastError"] == "It was lost or did not start; the gateway's log says why."
        assert leaks((await web.get(f"{address}/metrics")).text) == []


async def test_the_user_who_started_the_gateway_reads_why_a_server_ended(tmp_path: Path) -> None:
    async with raw_client(local_gateway(tmp_path).server) as client:
        await client.modern("tools/call", name="leave", arguments={})
        status = (await client.modern("resources/read", uri=STATUS))["result"]["contents"][0]["text"]
    (described,) = json.loads(status)
    assert "ended with exit code 3: Error: " in described["lastError"] and leaks(status) == []


async def test_neither_a_promise_nor_its_progress_shows_a_secret(tmp_path: Path) -> None:
    extensions: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": extensions}
    gateway = local_gateway(tmp_path, of_server={"promise": "auto", "sync_seconds": 0.001})
    async with raw_client(gateway.server) as client:
        for name in ("error", "failure", "progress"):
            made = (await client.call("tools/call", name=name, arguments={}, _meta=meta))["result"]
            assert made["resultType"] == "task"
            states: list[dict[str, Any]] = []
            while not states or states[-1]["result"]["status"] == "working":
                states.append(await client.call("tasks/get", taskId=made["taskId"], _meta=meta))
                await asyncio.sleep(0.01)
            assert leaks(json.dumps(states)) == [], name


# What an operator says


@pytest.mark.parametrize(("of_gateway", "of_server", "is_redacted"), [(False, True, True), (True, False, False)])
async def test_a_server_decides_about_its_results_before_the_gateway(
    tmp_path: Path, of_gateway: bool, of_server: bool, is_redacted: bool
) -> None:
    async with raw_client(
        local_gateway(tmp_path, redact_results=of_gateway, of_server={"redact_results": of_server}).server
    ) as client:
        answer = await client.modern("tools/call", name="result", arguments={})
    assert (leaks(json.dumps(answer)) == []) == is_redacted


async def test_what_the_operator_says_is_no_secret_is_shown(tmp_path: Path) -> None:
    gateway = local_gateway(tmp_path, of_server={"not_secret": ["ANYTHING", "GITHUB_*"]})
    async with raw_client(gateway.server) as client:
        answer = await client.modern("tools/call", name="error", arguments={})
    assert leaks(json.dumps(answer)) == [core(7), core(12)]


# Over HTTP


def refusal(status: int, texts: list[str], **headers: str) -> Any:
    async def refuse(asked: FakeRequest, wire: FakeConnection) -> None:
        body = " ".join(texts).encode()
        plain = [text for text in texts if text.isascii() and text.isprintable()]
        lines = [f"HTTP/1.1 {status} {plain[0]}", *(f"{name}: {value}" for name, value in headers.items())]
        lines += [f"X-Echo: {' '.join(plain)}", f"Content-Length: {len(body)}"]
        await wire.raw(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body)

    return refuse


def json_error(status: int, text: str) -> Any:
    async def refuse(asked: FakeRequest, wire: FakeConnection) -> None:
        error = {"code": -32001, "message": text, "data": {"text": text}}
        await wire.json({"jsonrpc": "2.0", "id": asked.id, "error": error}, status)

    return refuse


@pytest.mark.parametrize("method", ["tools/call", "tools/list", "server/discover"])
async def test_no_answer_of_http_shows_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture, method: str) -> None:
    caplog.set_level(logging.DEBUG, "deltamcp")
    texts = remote_texts()
    plain = " ".join(text for text in texts if text.isascii() and text.isprintable())
    challenge = {"WWW-Authenticate": f'Bearer error="invalid_token", error_description="{plain}"'}
    faults = [
        json_error(200, " ".join(texts)),
        json_error(400, " ".join(texts)),
        *(refusal(status, texts) for status in (400, 404, 500, 503)),
        *(refusal(status, texts, **challenge) for status in (401, 403)),
    ]
    for fault in faults:
        async with serve_fake(Fake(handshake=False)) as fake:
            fake.always(method, fault)
            gateway = make_gateway(tmp_path, remote_entry(fake.url), wait_seconds=2.0)
            async with raw_client(gateway.server) as client:
                answers = [await client.modern("tools/call", name="echo", arguments={})]
                answers.append(await client.modern("resources/read", uri=STATUS))
            assert fake.of(method), "the fault was seen"
            assert leaks(json.dumps(answers)) == []
    assert leaks(caplog.text) == []
    assert leaks(files(tmp_path)) == []
