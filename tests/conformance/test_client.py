"""The official conformance suite, run against `DeltaClient`; `client.py` is the program it starts."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.interop

SUITE_SECONDS = 600
CLIENT = Path(__file__).with_name("client.py")
STAMP = re.compile(r"-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$")

OAUTH: dict[str, set[str]] = {
    "2025-11-25": {
        "metadata-default",
        "metadata-var1",
        "metadata-var2",
        "metadata-var3",
        "basic-cimd",
        "scope-from-www-authenticate",
        "scope-from-scopes-supported",
        "scope-omitted-when-undefined",
        "scope-step-up",
        "scope-retry-limit",
        "token-endpoint-auth-basic",
        "token-endpoint-auth-post",
        "token-endpoint-auth-none",
        "pre-registration",
    },
}
OAUTH["2026-07-28"] = OAUTH["2025-11-25"] | {
    "resource-mismatch",
    "offline-access-scope",
    "offline-access-not-supported",
    "authorization-server-migration",
    "iss-supported",
    "iss-not-advertised",
    "iss-supported-missing",
    "iss-wrong-issuer",
    "iss-unexpected",
    "iss-normalized",
    "metadata-issuer-mismatch",
}
"""Scored scenarios of the OAuth flow, which the client does not have yet: they wait, and they are all that fails."""

EXTENSIONS = {
    "client-credentials-jwt",
    "client-credentials-basic",
    "enterprise-managed-authorization",
    "dpop",
    "dpop-nonce",
    "wif-jwt-bearer",
}
"""Scenarios of OAuth's extensions, run in both and never scored."""

CHECKS = {
    "2025-11-25": {
        "initialize": 1,
        "tools_call": 2,
        "elicitation-sep1034-client-defaults": 5,
        "sse-retry": 3,
        "json-schema-2020-12-preservation": 9,
    },
    "2026-07-28": {
        "tools_call": 2,
        "request-metadata": 6,
        "sep-2322-client-request-state": 5,
        "http-standard-headers": 9,
        "http-custom-headers": 18,
        "http-invalid-tool-headers": 12,
        "json-schema-ref-no-deref": 1,
        "json-schema-2020-12-preservation": 9,
    },
}
"""Everything else, and how many of its checks say success."""


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_every_scenario_passes_but_those_of_the_oauth_flow(node, node_modules, tmp_path, revision):
    """@modelcontextprotocol/conformance 0.2.0-alpha.12."""
    entry = node_modules / "conformance-next" / "dist" / "index.js"
    options = ["--requirements", revision, "--timeout", "120000", "-o", tmp_path]
    ran = subprocess.run(
        [node, entry, "client", "--command", f"{sys.executable} {CLIENT}", *options],
        capture_output=True,
        text=True,
        timeout=SUITE_SECONDS,
        check=False,
    )
    results = {_scenario(path, tmp_path): _statuses(path) for path in tmp_path.glob("**/checks.json")}
    told = {name: counted for name, counted in results.items() if not name.startswith("auth/")}
    print(f"{revision}: {sum(counted['SUCCESS'] for counted in told.values())} checks in {len(told)} scenarios")

    assert {name: counted["SUCCESS"] for name, counted in told.items()} == CHECKS[revision], ran.stdout
    assert not any(counted["FAILURE"] or counted["WARNING"] for counted in told.values()), ran.stdout
    waiting = {name.removeprefix("auth/") for name in results if name.startswith("auth/")}
    assert waiting == OAUTH[revision] | EXTENSIONS


def _scenario(checks: Path, folder: Path) -> str:
    return STAMP.sub("", checks.parent.relative_to(folder).as_posix())


def _statuses(checks: Path) -> "Counter[str]":
    told: list[dict[str, Any]] = json.loads(checks.read_text())
    return Counter(check["status"] for check in told)
