"""What the servers reach instead of their vendors' services: a few canned answers at an address of this machine."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENTRY = {"name": "guide.md", "path": "docs/guide.md", "type": "blob", "mode": "100644", "id": "a1", "web_url": "none:"}
LINK = {"id": "1", "name": "Steeps", "inward": "is steeped by", "outward": "steeps"}
FOLLOWED = {"name": "darjeeling", "slug": "gh/tea/darjeeling", "vcs_type": "github"}

ANSWERS: dict[str, Any] = {
    "/hello": "Hello from afar.",
    "/projects/7/repository/files/docs": [ENTRY],  # server-gitlab
    "/api/v4/projects/7": {"id": 7, "name": "darjeeling", "default_branch": "main"},  # zereight-gitlab
    "/v2/map": {"success": True, "links": [{"url": "http://tea.test/darjeeling"}]},  # firecrawl
    "/v1/users/me": {"object": "user", "id": "darjeeling"},  # notion
    "/api/private/me/followed-projects": {"items": [FOLLOWED], "next_page_token": None},  # circleci
    "/_cat/indices/*": [{"index": "darjeeling", "health": "green", "status": "open"}],  # elasticsearch
    "/rest/api/2/issueLinkType": {"issueLinkTypes": [LINK]},  # atlassian
}
"""By path, whatever the method and the query; everything else is 404."""


class _Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        body = json.dumps(ANSWERS.get(path)).encode()
        self.send_response(200 if path in ANSWERS else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Elastic-Product", "Elasticsearch")  # or its client refuses the answer
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing: a failed test tells what was asked for."""


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
