"""Which test runs when, on several processes: file by file and longest first, by the durations of an earlier run.

A file's tests stay in one process, for they share what its fixtures start. A test that takes long by itself is a unit
of its own. `make durations` writes the record, which has the seconds of every unit.

The processes fork from the one that has collected the tests: each would collect them for 13 s of CPU otherwise.
"""

import atexit
import contextlib
import json
import math
import os
import signal
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest

from deltamcp import tokens
from tests.support.fork_server import fork_server

RECORD = Path(__file__).parents[1] / "durations.json"
LONG_SECONDS = 1.5
"""A test that takes so long without its fixtures is a unit of its own, unless those of its file take long, too."""


def read_record() -> dict[str, float]:
    """The seconds of every unit, which is a file or a test."""
    return dict(json.loads(RECORD.read_text()))


def longest_first(items: Sequence[pytest.Item], seconds: Mapping[str, float]) -> list[list[int]]:
    """The units, as the numbers of their tests; those that the record does not know come before all others."""
    units: defaultdict[str, list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        units[item.nodeid if item.nodeid in seconds else _file(item.nodeid)].append(number)
    return [units[name] for name in sorted(units, key=lambda name: -seconds.get(name, math.inf))]


class ParallelTests:
    """A plugin of pytest that runs the tests on a number of processes."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._workers: dict[Connection, _Worker] = {}

    def pytest_collection(self) -> None:
        fork_server()  # gets ready meanwhile
        tokens.count("é, é xqzxqz")  # makes the tokenizer's tables, for 100 ms, which the processes share

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None  # pytest itself says why no test runs
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # the processes' folders are in it
        units = longest_first(session.items, read_record())
        try:
            for _ in range(min(self._count, len(units))):
                self._fork(session)
            while self._workers:
                for connection in wait(list(self._workers)):
                    assert isinstance(connection, Connection)
                    self._hear(connection, units, session)
        finally:
            for connection, worker in self._workers.items():
                connection.close()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGINT)
                os.waitpid(worker.pid, 0)
        return True

    def _fork(self, session: pytest.Session) -> None:
        ours, theirs = Pipe()
        pid = os.fork()
        if pid == 0:
            ours.close()
            for connection in self._workers:
                connection.close()
            _run_tests(session, theirs)
        theirs.close()
        self._workers[ours] = _Worker(pid)

    def _hear(self, connection: Connection, units: list[list[int]], session: pytest.Session) -> None:
        """Does what a message of a process asks for; the first is its wish for a unit."""
        hook, worker = session.config.hook, self._workers[connection]
        try:
            kind, said = connection.recv()
        except (EOFError, OSError):
            del self._workers[connection]
            connection.close()
            _, status = os.waitpid(worker.pid, 0)
            if worker.left:
                died, *left = worker.left
                hook.pytest_runtest_logreport(report=_died(session.items[died], os.waitstatus_to_exitcode(status)))
                units[:0] = [left] if left else []
            if units:
                self._fork(session)
            return
        if kind == "report":
            hook.pytest_runtest_logreport(report=hook.pytest_report_from_serializable(config=session.config, data=said))
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
        elif kind == "failed":
            raise RuntimeError(said)
        elif kind == "running":
            worker.left = worker.left[worker.left.index(said) :]
            nodeid, location = session.items[said].nodeid, session.items[said].location
            hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
        else:
            worker.left = units.pop(0) if units else []
            connection.send(worker.left)


class _Worker:
    """A process that runs tests, as the one that has forked it knows it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.left: list[int] = []
        """The tests of its unit that have not ended, first the one that runs."""


def _died(item: pytest.Item, code: int) -> pytest.TestReport:
    ended = f"the process of the tests ended with {code}"
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", ended, "call")


class _Reports:
    """A plugin of pytest that passes on the reports of a process."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))


def _run_tests(session: pytest.Session, connection: Connection) -> NoReturn:
    """Runs unit after unit in a process that has just been forked, and ends it."""
    code = 1
    try:
        config = session.config
        _become_worker(config)
        config.pluginmanager.register(_Reports(config, connection))
        item: pytest.Item | None = None
        for unit in _units(connection):
            for number, following in zip(unit, [*unit[1:], None], strict=True):
                connection.send(("running", number))
                item = session.items[number]
                # After the last test of a unit the fixtures of the session stay: it is an ancestor of what follows.
                following_item: Any = session if following is None else session.items[following]
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following_item)
        if item is not None:
            _end_session_fixtures(session, item)
        code = 0
    except KeyboardInterrupt:
        with contextlib.suppress(BaseException):
            session._setupstate.teardown_exact(None)
    except BrokenPipeError:
        pass  # the process that collected has ended
    except BaseException:
        connection.send(("failed", traceback.format_exc()))
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _units(connection: Connection) -> Iterator[list[int]]:
    while True:
        connection.send(("ready", None))
        unit = connection.recv()
        if not unit:
            return
        yield unit


def _become_worker(config: pytest.Config) -> None:
    """Parts what a fork shares with its parent: the terminal, the files that output is captured in, folders."""
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    for plugin in plugins.get_plugins():
        if isinstance(plugin, DurationRecorder):
            plugins.unregister(plugin)
    capturing: Any = plugins.getplugin("capturemanager")._global_capturing
    for stream in (capturing.out, capturing.err) if capturing is not None else ():
        # The streams stay, because modules that are imported by now have them as defaults.
        if (file := getattr(stream, "tmpfile", None)) is not None and hasattr(stream, "targetfd"):
            with tempfile.TemporaryFile(buffering=0) as own:
                os.dup2(own.fileno(), file.fileno())
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / f"process-{os.getpid()}"
    factory._basetemp.mkdir(mode=0o700)


def _end_session_fixtures(session: pytest.Session, last: pytest.Item) -> None:
    call = pytest.CallInfo.from_call(lambda: session._setupstate.teardown_exact(None), "teardown")
    if call.excinfo is not None:
        report = last.ihook.pytest_runtest_makereport(item=last, call=call)
        last.ihook.pytest_runtest_logreport(report=report)


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
                setups[_file(report.nodeid)] = max(setups[_file(report.nodeid)], report.duration)
        long = {
            report.nodeid
            for report in self._reports
            if report.when == "call" and report.duration > max(LONG_SECONDS, 2 * setups[_file(report.nodeid)])
        }
        units: defaultdict[str, float] = defaultdict(float)
        for report in self._reports:
            units[report.nodeid if report.nodeid in long else _file(report.nodeid)] += report.duration
        rounded = {unit: round(seconds, 1) for unit, seconds in sorted(units.items())}
        RECORD.write_text(json.dumps(rounded, indent=0, ensure_ascii=False) + "\n")


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
