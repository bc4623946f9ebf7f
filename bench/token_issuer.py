"""An issuer of access tokens for a measurement: signs them, and serves its public key on the loopback."""

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Iterator

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

_KEY_ID = "bench"


class TokenIssuer:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.jwks_url = f"{self.url}/jwks"
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        self.jwks = json.dumps({"keys": [{**public, "kid": _KEY_ID, "use": "sig", "alg": "ES256"}]}).encode()

    def sign(self, subject: str, audience: str, scope: str = "") -> str:
        now = int(time.time())
        claims = {"iss": self.url, "sub": subject, "aud": audience, "iat": now, "exp": now + 3600, "scope": scope}
        return jwt.encode(claims, self._key, "ES256", {"kid": _KEY_ID, "typ": "at+jwt"})


@contextlib.contextmanager
def run_issuer() -> Iterator[TokenIssuer]:
    """Runs an issuer until the end of the block."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(issuer.jwks)))
            self.end_headers()
            self.wfile.write(issuer.jwks)

        def log_message(self, *_: object) -> None:
            """Writes nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer = TokenIssuer(server.server_address[1])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
