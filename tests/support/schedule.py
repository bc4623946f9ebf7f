"""Which test runs when, on several processes: file by file and longest first, by the durations of an earlier run.

A file's tests stay in one process, for they share what its fixtures start. A test that takes long by itself is a unit
of its own. `make durations` writes the record, which has the seconds of every unit.
"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

RECORD = Path(__file__).parents[1] / "durations.json"
LONG_SECONDS = 1.5
"""A test that takes so long without its fixtures is a unit of its own, unless those of its file take long, too."""


def read_record() -> dict[str, float]:
    """The seconds of every unit, which is a file or a test."""
    return dict(json.loads(RECORD.read_text()))


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """The scheduler of pytest-xdist's `--dist loadfile`, with long tests apart and the longest units first.

    Units that the record does not know come before all others.
    """

    def __init__(self, config: pytest.Config, log: Producer | None, seconds: Mapping[str, float]) -> None:
        super().__init__(config, log)
        self._seconds = seconds

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid in self._seconds else super()._split_scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        longest = max(self.workqueue, key=lambda unit: self._seconds.get(unit, math.inf))
        self.workqueue.move_to_end(longest, last=False)
        super()._assign_work_unit(node)


class DurationRecorder:
    """A plugin of pytest that writes the record at the end of a run."""

    def __init__(self) -> None:
        self._reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def pytest_sessionfinish(self) -> None:
        setups: defaultdict[str, float] = defaultdict(float)
        for report in self._reports:
            if report.when == "setup":
                setups[_file(report)] = max(setups[_file(report)], report.duration)
        long = {
            report.nodeid
            for report in self._reports
            if report.when == "call" and report.duration > max(LONG_SECONDS, 2 * setups[_file(report)])
        }
        units: defaultdict[str, float] = defaultdict(float)
        for report in self._reports:
            units[report.nodeid if report.nodeid in long else _file(report)] += report.duration
        rounded = {unit: round(seconds, 1) for unit, seconds in sorted(units.items())}
        RECORD.write_text(json.dumps(rounded, indent=0, ensure_ascii=False) + "\n")


def _file(report: pytest.TestReport) -> str:
    return report.nodeid.partition("::")[0]
