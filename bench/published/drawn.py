"""`python -m bench.published.drawn`: servers that nobody chose, each directly and behind the gateway.

The rule: of all names in the registry that end in `-mcp` or have `mcp-server` in them as words, in the order of the
SHA-256 of `registry:name`, the first that work without the gateway, 30 of npm and 30 of PyPI. Works means: the newest
version installs without running code of the package, its program starts without credentials, network or arguments (or
with the one word `stdio`, `mcp` or `serve`), and it lists tools. A server that was written for the SDK's first major
version and does not say so gets that version. The names of npm are those in the package `all-the-package-names`.

Every server runs in a scratch home, without a network, and as a user who owns nothing, which needs Linux and `unshare`.
Results are kept in `drawn.json` beside this module, and a name that is there is not tried again.
"""

import argparse
import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
import venv
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pip._internal.models.index import PyPI

from bench.published.comparison import Comparison, NotWorkingError, compare, tokens_of
from bench.published.harmless_calls import harmless_calls
from tests.interop.install import NODE, NPM_OPTIONS, PLACE
from tests.interop.servers import OFFLINE, SERVERS

Registry = Literal["npm", "pypi"]
REGISTRIES: tuple[Registry, ...] = ("npm", "pypi")
NAMES_PACKAGE = "all-the-package-names@2.0.2578"
DRAWN = Path(tempfile.gettempdir()) / "delta-mcp-drawn"
"""Not in the repository: above a package Node looks for what the package forgets to say that it needs."""
RESULTS = Path(__file__).with_name("drawn.json")
SERVER_NAME = re.compile(r"(^|[-_/.])mcp[-_.]server([-_.]|$)|[-_]mcp$")
WORDS: tuple[tuple[str, ...], ...] = ((), ("stdio",), ("mcp",), ("serve",))
"""What programs are started with, until one starts a server."""
NPM = [str(NODE / "bin/node"), str(NODE / "lib/node_modules/npm/bin/npm-cli.js")]
INSTALL_SECONDS = 300
CALLS = 4
NOBODY = 65534
OLD_SDK = "mcp<2"
WANTS_OLD_SDK = re.compile(r"No module named 'mcp\b|from 'mcp\b|mcp 2\.x|'Server' object has no attribute")
"""What Python says where the module is missing, or a name in it."""
_LONGEST_REASON = 100
COLUMNS = ("tools", "calls", "errors", "direct_tokens", "gateway_tokens")


@dataclass(frozen=True)
class DrawnServer:
    """An installed server and its scratch home."""

    program: list[str]
    folder: Path
    more_words: tuple[str, ...]
    environment: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        folder = str(self.folder)
        own = {"PATH": f"{NODE / 'bin'}:/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}
        cache = {"PYTHONPYCACHEPREFIX": str(self.folder.with_name("cache"))}
        object.__setattr__(self, "environment", {**OFFLINE, **own, **cache})

    @property
    def words(self) -> list[str]:
        return [*_isolated(), *self.program, *self.more_words]

    def furnish(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        (self.folder / "hello.txt").write_text("Hello from afar.\n")
        self.folder.with_name("cache").mkdir(exist_ok=True)
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
            os.chown(self.folder.with_name("cache"), NOBODY, NOBODY)


def _isolated() -> list[str]:
    """The words before a command that take the network from it, and the rights of the superuser."""
    nobody = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups "
    is_root = os.geteuid() == 0
    script = f'ip link set lo up; exec {nobody if is_root else ""}"$@"'
    return ["unshare", *([] if is_root else ["--map-root-user"]), "--net", "sh", "-c", script, "sh"]


@functools.cache
def names(registry: Registry) -> list[str]:
    """Returns the names that look like servers, in the order of the draw."""
    file = DRAWN / f"{registry}-names.json"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(_npm_names() if registry == "npm" else _pypi_names()))
    known = {server.package for server in SERVERS.values() if server.registry == registry}
    found = [name for name in json.loads(file.read_text()) if SERVER_NAME.search(name) and name not in known]
    return sorted(found, key=lambda name: hashlib.sha256(f"{registry}:{name}".encode()).digest())


def _npm_names() -> list[str]:
    _npm_install(DRAWN / "names", NAMES_PACKAGE)
    found: list[str] = json.loads((DRAWN / "names/node_modules/all-the-package-names/names.json").read_text())
    return found


def _pypi_names() -> list[str]:
    with urllib.request.urlopen(f"{PyPI.simple_url}/", timeout=INSTALL_SECONDS) as page:
        return [name.decode() for name in re.findall(rb'<a href="(?:/simple/)?([^"/]+)/"', page.read())]


@functools.cache
def _npm_registry() -> str:
    """The address of the registry that npm is set up for."""
    return _run([*NPM, "config", "get", "registry"]).strip()


def _check_npm_has(package: str) -> None:
    address = f"{_npm_registry()}{urllib.parse.quote(package, safe='@')}"
    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=INSTALL_SECONDS).close()
    except urllib.error.HTTPError as error:
        raise NotWorkingError(f"is not in the registry: {error.code}") from None


def _npm_install(place: Path, package: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    _run([*NPM, "install", "--prefix", str(place), *NPM_OPTIONS, package])


def _pip_install(place: Path, *packages: str) -> None:
    if not place.is_dir():
        venv.create(place, symlinks=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(place),
        "--disable-pip-version-check",
        "install",
        "-q",
        "--no-compile",
    ]
    # A source distribution would run code of the package's.
    _run([*pip, "--only-binary=:all:", *packages])


def _run(command: list[str]) -> str:
    environment = {**os.environ, "PATH": f"{NODE / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    try:
        ran = subprocess.run(
            ["nice", "-n", "10", *command], env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise NotWorkingError("is not installed in time") from None
    if ran.returncode:
        errors = [line for line in ran.stderr.splitlines() if re.match("ERROR: |npm error code", line)] or ["ERROR: ?"]
        if "different python version" in ran.stderr:
            raise NotWorkingError("needs another version of Python")
        raise NotWorkingError(f"cannot be installed: {errors[-1].removeprefix('ERROR: ')}")
    return ran.stdout


def install(registry: Registry, package: str, place: Path) -> tuple[str, list[str]]:
    """Installs the newest version of a package, and returns the version and the words of its program.

    Raises:
        NotWorkingError: it cannot be installed, or has no program.
    """
    if registry == "npm":
        _check_npm_has(package)
        _npm_install(place, package)
        about = json.loads((place / "node_modules" / package / "package.json").read_text("utf-8-sig"))
        given = about.get("bin") or {}
        programs = {package.rpartition("/")[2]: given} if isinstance(given, str) else given
        version, start = about["version"], [str(NODE / "bin/node")]
        files = {name: str(place / "node_modules" / package / file) for name, file in programs.items()}
    else:
        _pip_install(place, package)
        [site] = place.glob("lib/python*/site-packages")
        [about] = importlib.metadata.distributions(name=package, path=[str(site)])
        version, start = about.version, []
        scripts = about.entry_points.select(group="console_scripts")
        files = {script.name: str(place / "bin" / script.name) for script in scripts}
    if not files:
        raise NotWorkingError("has no program")
    usual = [name for name in files if name == package.rpartition("/")[2]] + [name for name in files if "mcp" in name]
    return version, [*start, files[[*usual, *files][0]]]


def try_package(registry: Registry, package: str) -> dict[str, Any]:
    """Installs a package, compares its server with itself behind the gateway, and removes it."""
    place = DRAWN / registry / re.sub(r"[^a-z0-9.-]+", "-", package.lower())
    scratch = Path(tempfile.mkdtemp(prefix="drawn-"))
    scratch.chmod(0o755)
    told: dict[str, Any] = {"registry": registry, "package": package}
    try:
        told["version"], program = install(registry, package, place)
        try:
            found = _compare(program, scratch / "home", told)
        except NotWorkingError as error:
            if registry == "npm" or not WANTS_OLD_SDK.search(str(error)):
                raise
            told["beside"] = OLD_SDK
            _pip_install(place, package, OLD_SDK)
            found = _compare(program, scratch / "home", told)
        return told | _told(found)
    except (NotWorkingError, OSError, ValueError) as error:  # packages hold what nobody foresees
        return told | {"works": False, "reason": _shortened(str(error), place, scratch)}
    finally:
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(scratch, ignore_errors=True)


def _compare(program: list[str], folder: Path, told: dict[str, Any]) -> Comparison:
    first: NotWorkingError | None = None
    for words in WORDS:
        try:
            found = compare(DrawnServer(program, folder, words), lambda tools: harmless_calls(tools, folder, CALLS))
        except NotWorkingError as error:
            first = first or error
            if not str(error).startswith("ends"):
                break
        else:
            told["words"] = list(words)
            return found
    assert first is not None
    raise first


def _told(found: Comparison) -> dict[str, Any]:
    answers = [one for one in found.calls if not one.fails and "meta" in one.behind]
    differs = [f"{one.call.tool} ({', '.join(one.differs)})" for one in found.calls if one.differs]
    return {
        "works": True,
        "tools": len(found.tools),
        "calls": len(found.calls),
        "errors": sum(one.fails for one in found.calls),
        "varies": sum(one.varies for one in found.calls),
        "direct_tokens": sum(tokens_of(one.direct) for one in answers),
        "gateway_tokens": sum(tokens_of(one.behind["meta"]) for one in answers),
        "read_as": Counter(one.kind for one in answers),
        "behind": not found.faults and not differs,
        **({"faults": found.faults} if found.faults else {}),
        **({"differs": differs} if differs else {}),
    }


def _shortened(reason: str, place: Path, scratch: Path) -> str:
    for path, name in ((place, "PACKAGE"), (scratch, "HOME"), (NODE, "NODE"), (PLACE.parents[1], "REPOSITORY")):
        reason = reason.replace(str(path), name)
    reason = re.sub(r"\x1b\[[0-9;]*m", "", reason)
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 1]}…"


class Results:
    """What was found so far, in a file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.found: list[dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else []

    def add(self, told: dict[str, Any]) -> None:
        with self._lock:
            self.found.append(told)
            order = {(registry, name): at for registry in REGISTRIES for at, name in enumerate(names(registry))}
            self.found.sort(key=lambda one: (one["registry"], order.get((one["registry"], one["package"]), 0)))
            RESULTS.write_text("[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in self.found) + "\n]\n")

    def forget(self, packages: list[str]) -> None:
        self.found = [one for one in self.found if one["package"] not in packages]

    def working(self, registry: Registry) -> int:
        return sum(one["works"] for one in self.found if one["registry"] == registry)


def draw(registry: Registry, wanted: int, results: Results) -> None:
    tried = {one["package"] for one in results.found if one["registry"] == registry}
    for name in names(registry):
        if results.working(registry) >= wanted:
            return
        if name not in tried:
            told = try_package(registry, name)
            results.add(told)
            print(json.dumps(told, ensure_ascii=False), flush=True)


def print_tables(results: Results) -> None:
    """Prints what the documentation has: the servers that work, and how many do not, by the kind of reason."""
    print("| package | version | tools | calls | errors | direct | gateway | behind the gateway |")
    print("|---|---|---|---|---|---|---|---|")
    working = [one for one in results.found if one["works"]]
    for one in working:
        faults = [*one.get("faults", []), *(f"another answer: {tool}" for tool in one.get("differs", []))]
        names = (f"{one['package']} ({one['registry']})", one["version"])
        figures = (f"{one[key]:,}" for key in COLUMNS)
        cells = [*names, *figures, "; ".join(faults) or "works"]
        print(f"| {' | '.join(cells)} |")
    sums = (sum(one[key] for one in working) for key in COLUMNS)
    print(f"| {len(working)} servers | | {' | '.join(f'{figure:,}' for figure in sums)} | |")
    kinds = sum((Counter(one["read_as"]) for one in working), Counter[str]())
    print("\nread as: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    print(f"{sum(one['varies'] for one in working)} calls answer otherwise each time, and were not compared.")
    for registry in REGISTRIES:
        failing = [one["reason"] for one in results.found if not one["works"] and one["registry"] == registry]
        print(f"\n| {registry}: does not work directly | servers |\n|---|---|")
        for reason, count in Counter(reason.partition(":")[0] for reason in failing).most_common():
            print(f"| {reason} | {count} |")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.published.drawn", description=__doc__)
    parser.add_argument("--each", type=int, default=30, metavar="N", help="working servers of each registry (30)")
    parser.add_argument("--again", action="append", default=[], metavar="PACKAGE", help="try it again; repeatable")
    parser.add_argument("--table", action="store_true", help="only print what the file has")
    given = parser.parse_args()
    results = Results()
    if not given.table:
        results.forget(given.again)
        for registry in REGISTRIES:
            print(f"{registry}: {len(names(registry)):,} names", flush=True)
        # Two at once: one of each registry.
        threads = [threading.Thread(target=draw, args=(registry, given.each, results)) for registry in REGISTRIES]
        for thread in threads:
            thread.start()
        with contextlib.suppress(KeyboardInterrupt):
            for thread in threads:
                thread.join()
    print_tables(results)


if __name__ == "__main__":
    main()
