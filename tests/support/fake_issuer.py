"""An authorization server that resource servers ask: it has metadata, keys and introspection, and counts who asks.

async with serve_issuer() as issuer:
    token = issuer.token(sub="ada")
    issuer.once("/jwks", b"HTTP/1.1 500 Oops\r\n\r\n")
"""

import asyncio
import base64
import contextlib
import functools
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.support.fake_http import read_head

RESOURCE = "https://tools.example/mcp"


@functools.cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """One of several RSA keys, made once in a process."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@functools.cache
def ec_key(number: int = 0) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@functools.cache
def ed_key(number: int = 0) -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public_jwk(key: Any, **members: Any) -> dict[str, Any]:
    """The public part of a key as a JWK."""
    if isinstance(key, rsa.RSAPrivateKey):
        jwk = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        jwk = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        jwk = jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**{name: value for name, value in jwk.items() if name != "key_ops"}, **members}


def base64url(data: bytes | str | dict[str, Any]) -> str:
    """Encodes bytes, text or JSON without padding."""
    if isinstance(data, dict):
        data = json.dumps(data)
    return base64.urlsafe_b64encode(data.encode() if isinstance(data, str) else data).rstrip(b"=").decode()


def sign(header: dict[str, Any] | str, payload: dict[str, Any] | str, key: Any, algorithm: str) -> str:
    """Signs any header and payload, also those that a library would refuse to sign."""
    signed = f"{base64url(header)}.{base64url(payload)}"
    signature = jwt.get_algorithm_by_name(algorithm).sign(signed.encode(), key)
    return f"{signed}.{base64url(signature)}"


class FakeIssuer:
    """The server: what it has, what it says about tokens, and how often it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: dict[str, Any] = {"k1": ec_key()}
        self.asked: Counter[str] = Counter()
        self.forms: list[dict[str, str]] = []
        self.authorizations: list[str] = []
        self.active: dict[str, dict[str, Any]] = {}
        """What introspection says about tokens; of others that they are not active."""
        self.metadata: dict[str, Any] = {}
        """Members that replace those of the metadata."""
        self.gate = asyncio.Event()
        """While it is clear, no request is answered."""
        self.gate.set()
        self._once: dict[str, list[bytes]] = defaultdict(list)
        self._always: dict[str, bytes] = {}

    def once(self, path: str, *answers: bytes) -> None:
        """Sends these bytes instead of the next answers at a path."""
        self._once[path] += answers

    def always(self, path: str, answer: bytes) -> None:
        """Sends these bytes instead of every further answer at a path."""
        self._always[path] = answer

    def recover(self) -> None:
        """Ends what `always` began."""
        self._always.clear()

    def claims(self, **changes: Any) -> dict[str, Any]:
        """The claims of a valid token, with changes; a claim that is ... is left out."""
        now = int(time.time())
        good = {"iss": self.url, "sub": "ada", "aud": RESOURCE, "exp": now + 600, "iat": now, "scope": "read"}
        return {name: value for name, value in {**good, **changes}.items() if value is not ...}

    def token(self, *, kid: str = "k1", headers: dict[str, Any] | None = None, **changes: Any) -> str:
        """A token, signed by the key of this id."""
        return sign({"alg": "ES256", "kid": kid, **(headers or {})}, self.claims(**changes), self.keys[kid], "ES256")

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            _, path, headers = await read_head(reader)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.asked[path] += 1
            await self.gate.wait()
            writer.write(self._next_answer(path, headers, body))
            await writer.drain()
        writer.close()

    def _next_answer(self, path: str, headers: dict[str, str], body: bytes) -> bytes:
        if self._once[path]:
            return self._once[path].pop(0)
        if path in self._always:
            return self._always[path]
        match path:
            case "/.well-known/oauth-authorization-server":
                return json_answer({"issuer": self.url, "jwks_uri": f"{self.url}/jwks", **self.metadata})
            case "/jwks":
                return json_answer({"keys": [public_jwk(key, kid=id_) for id_, key in self.keys.items()]})
            case "/introspect":
                form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
                self.forms.append(form)
                self.authorizations.append(headers.get("authorization", ""))
                return json_answer(self.active.get(form["token"], {"active": False}))
            case _:
                return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def json_answer(document: Any, status: str = "200 OK") -> bytes:
    """A whole HTTP response with a JSON document."""
    body = json.dumps(document).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close"
    return f"{head}\r\n\r\n".encode() + body


@contextlib.asynccontextmanager
async def serve_issuer() -> AsyncIterator[FakeIssuer]:
    issuer = FakeIssuer()
    server = await asyncio.start_server(issuer.answer, "127.0.0.1", 0)
    issuer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield issuer
    finally:
        issuer.gate.set()
        server.close()
