"""TLS by certificate files."""

import re
import ssl

import httpx2
import pytest

from deltamcp import ConfigurationError, DeltaServer
from deltamcp.transports.http.server import make_server
from deltamcp.transports.sockets import check_files
from tests.support.certificate import write_certificate, write_key
from tests.support.http_server import serve_uvicorn
from tests.support.raw_client import META

HEADERS = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "accept": "application/json"}


@pytest.fixture
def files(tmp_path):
    write_certificate(tmp_path)
    return tmp_path


def make_padding_server() -> DeltaServer:
    server = DeltaServer("x")

    @server.tool
    async def pad(size: int) -> str:
        return "x" * size

    return server


async def call(http: httpx2.AsyncClient, url: str, size: int) -> httpx2.Response:
    params = {"name": "pad", "arguments": {"size": size}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return await http.post(url, json=message, headers={**HEADERS, "mcp-name": "pad"})


async def test_a_server_with_a_certificate_speaks_https(files, capsys):
    server = make_padding_server()
    http_server = make_server(server.engine, port=0, tls_cert=files / "cert.pem", tls_key=files / "key.pem")
    trust = ssl.create_default_context(cafile=files / "cert.pem")
    async with serve_uvicorn(http_server) as address, httpx2.AsyncClient(verify=trust) as http:
        url = address.replace("http:", "https:")
        for size in (1, 50_000, 3_000_000):
            response = await call(http, f"{url}/mcp", size)
            assert len(response.json()["result"]["content"][0]["text"]) == size
        headers = {"content-type": "application/json", "connection": "close"}
        refused = await http.post(f"{url}/mcp", content=b"x" * 6_000_000, headers=headers)
        assert refused.status_code == 413
        assert (await http.get(f"{url}/healthz")).status_code == 200
        with pytest.raises(httpx2.TransportError):
            await http.get(f"{address}/healthz")
    assert re.search(r"Serving x at https://127\.0\.0\.1:\d+/mcp", capsys.readouterr().err)


def test_one_file_may_have_both_parts(files):
    both = files / "both.pem"
    both.write_bytes((files / "cert.pem").read_bytes() + (files / "key.pem").read_bytes())
    assert check_files(both, None) == (str(both), str(both))
    assert check_files(None, None) is None


@pytest.mark.parametrize(
    ("cert", "key", "sentence"),
    [
        (None, "key.pem", "tls_key needs tls_cert"),
        ("none.pem", "key.pem", "none.pem cannot be read for TLS: No such file or directory."),
        ("cert.pem", "none.pem", "none.pem cannot be read for TLS: No such file or directory."),
        ("cert.pem", None, "must be a certificate and its private key in PEM"),
        ("cert.pem", "other.pem", "must be a certificate and its private key in PEM"),
        ("text.pem", "key.pem", "must be a certificate and its private key in PEM"),
        ("cert.pem", "locked.pem", "The private key for TLS has a password"),
    ],
)
def test_files_that_cannot_be_used_are_told_in_one_sentence(files, cert, key, sentence):
    write_key(files / "other.pem")
    write_key(files / "locked.pem", b"secret")
    (files / "text.pem").write_text("no certificate")
    with pytest.raises(ConfigurationError, match=re.escape(sentence)) as error:
        check_files(cert and files / cert, key and files / key)
    assert "\n" not in str(error.value)
