"""A server behind a gateway that wants its users to log in, and its authorization server, run for a block."""

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def run_login_server() -> Iterator[str]:
    """Runs both until the end of the block; the URL of the server. Nobody can end a login there."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            base = f"http://127.0.0.1:{server.server_address[1]}"
            if "oauth-protected-resource" in self.path:
                self._send(200, {"resource": f"{base}/mcp", "authorization_servers": [base]})
            elif "oauth-authorization-server" in self.path or "openid-configuration" in self.path:
                self._send(
                    200,
                    {
                        "issuer": base,
                        "authorization_endpoint": f"{base}/authorize",
                        "token_endpoint": f"{base}/token",
                        "registration_endpoint": f"{base}/register",
                        "response_types_supported": ["code"],
                        "grant_types_supported": ["authorization_code"],
                        "code_challenge_methods_supported": ["S256"],
                        "token_endpoint_auth_methods_supported": ["none"],
                    },
                )
            else:
                self._send(404, {})

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path == "/register":
                self._send(201, {**json.loads(sent), "client_id": "gateway", "token_endpoint_auth_method": "none"})
            else:
                self._send(401, {})

        def _send(self, status: int, said: object) -> None:
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if status == 401:
                base = f"http://127.0.0.1:{server.server_address[1]}"
                metadata = f"{base}/.well-known/oauth-protected-resource/mcp"
                self.send_header("WWW-Authenticate", f'Bearer resource_metadata="{metadata}"')
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Writes nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        server.server_close()
