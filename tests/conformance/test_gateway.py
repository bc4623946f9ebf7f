"""The official conformance suite through the gateway: no check is lost that the server behind it passes directly."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.conformance_suite import Checks, read_checks, run_suite
from tests.support.paths import FORKED_PROGRAM, ROOT
from tests.support.processes import free_port, served_command, wait_until_it_listens

pytestmark = pytest.mark.interop

REQUIREMENTS = {"handshake": "2025-11-25", "modern": "2026-07-28"}
"""What the suite checks of a server, by the era in front."""
NPM_EVERYTHING = (
    ROOT / ".tools/interop/npm/everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
)

NO_SUCH_TOOL = {"tools-call-error/tools-call-error", "tools-call-simple-text/tools-call-simple-text"}
"""The npm server has not these tools, and its SDK says so in a result, which the suite takes for that of the tool. The
gateway does not forward calls of tools that nobody lists, and answers by the error that MCP has for them."""
NO_EARLY_END = {
    "server-sse-polling/server-sse-disconnect-resume",
    "server-sse-polling/outgoing-request",
    "server-sse-polling/incoming-response",
}
"""In the modern era no server closes the stream of a request early, and so the gateway does not either."""
NO_KEYS = {
    "input-required-result-basic-elicitation/sep-2322-elicitation-incomplete",
    "input-required-result-basic-elicitation/sep-2322-elicitation-complete",
    "input-required-result-ignore-extra-params/sep-2322-ignore-unexpected-params",
    "input-required-result-multiple-input-requests/sep-2322-multiple-inputs-incomplete",
    "input-required-result-multiple-input-requests/sep-2322-multiple-inputs-complete",
}
"""A server of the handshake era asks by requests, one by one and without the keys that the suite expects."""
NO_CAPABILITIES = {
    "server-stateless/sep-2575-server-rejects-undeclared-capability",
    "server-stateless/sep-2575-missing-capability-http-400",
    "input-required-result-capability-check/sep-2322-respect-client-capabilities",
}
"""In the handshake era a server learns once what its client can do. The gateway can pass any question on, so the server
asks, is refused, and answers as it likes: it cannot refuse the call as it would in the modern era."""

WITHIN_1500_MS = {
    "server-stateless/sep-2575-server-sends-prompts-list-changed-on-subscription",
    "server-stateless/sep-2575-server-sends-tools-list-changed-on-subscription",
}
"""The suite waits so long for a notification, before which the gateway reads a list; a busy machine may be slower."""


@pytest.fixture(scope="module")
def suite(node: Path, node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs the suite for an era in front, and returns what each check came to."""

    def run(url: str, front: str) -> Checks:
        folder = tmp_path_factory.mktemp("checks")
        entry = node_modules / "conformance-next" / "dist" / "index.js"
        run_suite(node, entry, url, folder, "--requirements", REQUIREMENTS[front])
        return read_checks(folder)

    return run


@pytest.fixture(scope="module")
def of_example(suite: Any, everything: str) -> dict[str, Checks]:
    """What the checks of the example come to without a gateway, by the era in front."""
    return {front: suite(everything, front) for front in REQUIREMENTS}


@contextlib.contextmanager
def gateway(entry: Mapping[str, Any], speak: str, folder: Path) -> Iterator[str]:
    settings = {
        "GATEWAY_ENTRY": json.dumps(entry),
        "GATEWAY_SPEAK": speak,
        "GATEWAY_CACHE": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        with served_command(
            [str(FORKED_PROGRAM), "serve", str(Path(__file__).with_name("everything_gateway.py"))]
        ) as url:
            yield url


@contextlib.contextmanager
def npm_everything(node: Path) -> Iterator[str]:
    if not NPM_EVERYTHING.exists():
        pytest.skip("server-everything is not installed: make interop")
    port = free_port()
    with subprocess.Popen(
        [node, NPM_EVERYTHING, "streamableHttp"],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            wait_until_it_listens(process, port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def lost(direct: Checks, through: Checks) -> set[str]:
    """The checks that passed more often directly."""
    return {
        name for name, counted in direct.items() if counted["SUCCESS"] > through.get(name, type(counted)())["SUCCESS"]
    }


def run_through(suite: Any, direct: Checks, url: str, front: str) -> Checks:
    """Runs the suite against a gateway, and again while it lost checks that a busy machine fails."""
    for _ in range(3):
        through: Checks = suite(url, front)
        if not lost(direct, through) & WITHIN_1500_MS:
            break
    return through


@pytest.mark.diagonal("front", "behind")
@pytest.mark.parametrize("behind", ["handshake", "modern"])
@pytest.mark.parametrize("front", ["handshake", "modern"])
def test_no_check_of_the_example_is_lost(
    suite: Any, of_example: dict[str, Checks], everything: str, tmp_path: Path, front: str, behind: str
) -> None:
    direct = of_example[front]
    with gateway({"url": everything}, behind, tmp_path) as url:
        through = run_through(suite, direct, url, front)
    expected = {
        ("handshake", "modern"): NO_EARLY_END,
        ("modern", "handshake"): NO_KEYS | NO_CAPABILITIES,
    }.get((front, behind), set())
    passed = sum(counted["SUCCESS"] for counted in through.values())
    print(f"{front} in front, {behind} behind: {passed} of {sum(one['SUCCESS'] for one in direct.values())} checks")
    assert lost(direct, through) <= expected


def test_no_check_of_the_example_over_stdio_is_lost(
    suite: Any, of_example: dict[str, Checks], command: list[str], tmp_path: Path
) -> None:
    direct = of_example["modern"]
    with gateway({"command": command[0], "args": command[1:]}, "auto", tmp_path) as url:
        assert lost(direct, run_through(suite, direct, url, "modern")) == set()


@pytest.mark.parametrize("front", ["handshake", pytest.param("modern", marks=pytest.mark.deep)])
def test_no_check_of_server_everything_is_lost(suite: Any, node: Path, tmp_path: Path, front: str) -> None:
    with npm_everything(node) as direct_url:
        direct = suite(direct_url, front)
    with gateway({"command": str(node), "args": [str(NPM_EVERYTHING), "stdio"]}, "auto", tmp_path) as url:
        through = suite(url, front)
    assert lost(direct, through) <= NO_SUCH_TOOL
