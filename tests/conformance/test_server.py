"""The official conformance suite, run against the example server."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.conformance_suite import RESULT_DIRECTORY, run_suite
from tests.support.paths import FORKED_PROGRAM
from tests.support.processes import served_command

pytestmark = pytest.mark.interop

VERDICTS = ("SUCCESS", "FAILURE", "WARNING")
"""The statuses that judge; INFO only tells, SKIPPED did not look."""

TASKS = {
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
}
"""Scenarios of the extension for tasks, which are not scored."""

SKIPPED_BY_THE_SUITE = {"tasks-status-notifications"}
"""The suite itself waits for a rewrite of this one."""

Results = dict[str, "Counter[str]"]


@pytest.fixture
def conformance(node: Path, node_modules: Path, tmp_path: Path) -> Any:
    """Runs a version of the suite against a server and gives the statuses of the checks of each scenario."""

    def run(url: str, package: str, *options: str) -> Results:
        entry = node_modules / package / "dist" / "index.js"
        ran = run_suite(node, entry, url, tmp_path, *options)
        results = {_scenario(path): Counter(_statuses(path)) for path in tmp_path.glob("*/checks.json")}
        total = sum(results.values(), Counter[str]())
        judged = sum(total[status] for status in VERDICTS)
        print(f"{package} {' '.join(options)}: {total['SUCCESS']} of {judged} checks, {len(results)} scenarios")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return results

    return run


def _scenario(checks: Path) -> str:
    found = RESULT_DIRECTORY.fullmatch(checks.parent.name)
    assert found is not None, checks
    return found["scenario"]


def _statuses(checks: Path) -> list[str]:
    return [check["status"] for check in json.loads(checks.read_text())]


def _with(results: Results, *statuses: str) -> set[str]:
    return {scenario for scenario, counted in results.items() if any(counted[status] for status in statuses)}


def _successes(results: Results) -> int:
    return sum(counted["SUCCESS"] for counted in results.values())


def test_the_stable_suite_passes_40_checks_of_40(conformance, everything):
    """@modelcontextprotocol/conformance 0.1.16."""
    results = conformance(everything, "conformance-stable", "--suite", "active")
    assert _with(results, "FAILURE", "WARNING", "SKIPPED") == set()
    assert (len(results), _successes(results)) == (30, 40)


def test_the_requirements_of_2025_11_25_pass_84_checks_of_84(conformance, everything):
    """@modelcontextprotocol/conformance 0.2.0-alpha.12."""
    results = conformance(everything, "conformance-next", "--requirements", "2025-11-25")
    assert _with(results, "FAILURE", "WARNING", "SKIPPED") == set()
    assert (len(results), _successes(results)) == (33, 84)


def test_the_requirements_of_2026_07_28_pass_153_checks_of_153_and_those_of_tasks_44_of_44(conformance):
    """@modelcontextprotocol/conformance 0.2.0-alpha.12; its exit code judges the scored scenarios."""
    with served_command(
        [str(FORKED_PROGRAM), "serve", str(Path(__file__).with_name("everything_with_tasks.py"))]
    ) as url:
        results = conformance(url, "conformance-next", "--requirements", "2026-07-28")
    assert _with(results, "FAILURE", "WARNING") == set()
    assert _with(results, "SKIPPED") == SKIPPED_BY_THE_SUITE
    tasks = {name: counted for name, counted in results.items() if name in TASKS}
    scored = {name: counted for name, counted in results.items() if name not in TASKS}
    print(f"scored: {_successes(scored)} checks; tasks: {_successes(tasks)} checks in {len(tasks)} scenarios")
    assert (len(results), _successes(scored)) == (50, 153)
    assert (set(tasks), _successes(tasks)) == (TASKS, 44)
