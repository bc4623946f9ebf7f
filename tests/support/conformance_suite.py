"""The official conformance suite: runs one version of it against a server, and reads what each check came to."""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

SUITE_SECONDS = 600
RESULT_DIRECTORY = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z")

Checks = dict[str, "Counter[str]"]
"""The statuses of the checks, by `scenario/check`."""


def run_suite(node: Path, entry: Path, url: str, folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Runs the suite, whose program is `entry`, and has it write its results into a folder."""
    return subprocess.run(
        [node, entry, "server", "--url", url, *options, "-o", folder],
        capture_output=True,
        text=True,
        timeout=SUITE_SECONDS,
        check=False,
    )


def read_checks(folder: Path) -> Checks:
    """Returns what the suite wrote into a folder."""
    found: Checks = {}
    for path in folder.glob("*/checks.json"):
        scenario = RESULT_DIRECTORY.fullmatch(path.parent.name)
        assert scenario is not None, path
        for check in json.loads(path.read_text()):
            found.setdefault(f"{scenario['scenario']}/{check['id']}", Counter())[check["status"]] += 1
    return found
