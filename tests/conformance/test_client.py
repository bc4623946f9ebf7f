"""The official conformance suite, run against `DeltaClient`; `client.py` is the program it starts."""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import FORKED_PYTHON

pytestmark = pytest.mark.interop

SUITE_SECONDS = 600
CLIENT = Path(__file__).with_name("client.py")
STAMP = re.compile(r"-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$")

EXTENSIONS = {
    "auth/enterprise-managed-authorization": "exchanges a token of an enterprise's identity provider",
    "auth/dpop": "tokens bound to a key (RFC 9449), which no server of MCP's revisions so far may demand",
    "auth/dpop-nonce": "the same, with nonces of the server",
    "auth/wif-jwt-bearer": "exchanges the token of a workload's platform, which a program can do in its token function",
}
"""Scenarios of extensions that the client does not have, and what they are about; the suite runs and never scores
them."""

CHECKS = {
    "2025-11-25": {
        "initialize": 1,
        "tools_call": 2,
        "elicitation-sep1034-client-defaults": 5,
        "sse-retry": 3,
        "json-schema-2020-12-preservation": 9,
        "auth/metadata-default": 18,
        "auth/metadata-var1": 18,
        "auth/metadata-var2": 18,
        "auth/metadata-var3": 18,
        "auth/basic-cimd": 13,
        "auth/scope-from-www-authenticate": 14,
        "auth/scope-from-scopes-supported": 14,
        "auth/scope-omitted-when-undefined": 14,
        "auth/scope-step-up": 23,
        "auth/scope-retry-limit": 10,
        "auth/token-endpoint-auth-basic": 19,
        "auth/token-endpoint-auth-post": 19,
        "auth/token-endpoint-auth-none": 19,
        "auth/pre-registration": 13,
        "auth/client-credentials-jwt": 9,
        "auth/client-credentials-basic": 9,
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
        "auth/metadata-default": 18,
        "auth/metadata-var1": 18,
        "auth/metadata-var2": 18,
        "auth/metadata-var3": 18,
        "auth/basic-cimd": 12,
        "auth/scope-from-www-authenticate": 14,
        "auth/scope-from-scopes-supported": 14,
        "auth/scope-omitted-when-undefined": 14,
        "auth/scope-step-up": 26,
        "auth/scope-retry-limit": 11,
        "auth/token-endpoint-auth-basic": 19,
        "auth/token-endpoint-auth-post": 19,
        "auth/token-endpoint-auth-none": 19,
        "auth/pre-registration": 12,
        "auth/resource-mismatch": 2,
        "auth/offline-access-scope": 12,
        "auth/offline-access-not-supported": 14,
        "auth/authorization-server-migration": 28,
        "auth/iss-supported": 14,
        "auth/iss-not-advertised": 14,
        "auth/iss-supported-missing": 8,
        "auth/iss-wrong-issuer": 8,
        "auth/iss-unexpected": 8,
        "auth/iss-normalized": 8,
        "auth/metadata-issuer-mismatch": 3,
        "auth/client-credentials-jwt": 8,
        "auth/client-credentials-basic": 8,
    },
}
"""Everything else, and how many of its checks say success."""


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_every_scenario_passes_but_those_of_extensions_that_the_client_lacks(node, node_modules, tmp_path, revision):
    """@modelcontextprotocol/conformance 0.2.0-alpha.12."""
    entry = node_modules / "conformance-next" / "dist" / "index.js"
    options = ["--requirements", revision, "--timeout", "120000", "-o", tmp_path]
    ran = subprocess.run(
        [node, entry, "client", "--command", f"{FORKED_PYTHON} {CLIENT}", *options],
        capture_output=True,
        text=True,
        timeout=SUITE_SECONDS,
        check=False,
    )
    results = {_scenario(path, tmp_path): _statuses(path) for path in tmp_path.glob("**/checks.json")}
    told = {name: counted for name, counted in results.items() if name not in EXTENSIONS}
    print(f"{revision}: {sum(counted['SUCCESS'] for counted in told.values())} checks in {len(told)} scenarios")

    assert {name: counted["SUCCESS"] for name, counted in told.items()} == CHECKS[revision], ran.stdout
    assert not any(counted["FAILURE"] or counted["WARNING"] for counted in told.values()), ran.stdout
    assert results.keys() - told.keys() == EXTENSIONS.keys()


def _scenario(checks: Path, folder: Path) -> str:
    return STAMP.sub("", checks.parent.relative_to(folder).as_posix())


def _statuses(checks: Path) -> "Counter[str]":
    told: list[dict[str, Any]] = json.loads(checks.read_text())
    return Counter(check["status"] for check in told)
