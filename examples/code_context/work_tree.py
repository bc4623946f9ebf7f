"""The Python files of a git work tree, as they lie there: uncommitted edits and untracked files count."""

import hashlib
import os
import subprocess
import threading
import time
import warnings
from pathlib import Path
from typing import NamedTuple

from deltamcp import ToolError
from examples.code_context.graph import Graph
from examples.code_context.source import Scope, read

_LARGEST = 1_000_000
"""Bytes of a file; larger ones are data or generated."""
_SETTLED = 1.0
"""Seconds. A younger file could change again within its timestamp, as git knows of its own index ("racy git")."""


class _Seen(NamedTuple):
    stamp: tuple[int, int] | None
    digest: bytes
    name: str
    module: Scope | None
    """As it last parsed."""


class WorkTree:
    """Reads again what changed. Calls may come from several threads."""

    def __init__(self, path: str | Path = ".") -> None:
        """
        Args:
            path: Anywhere in the work tree.
        """
        self._path = Path(path)
        self._lock = threading.Lock()
        self._root: Path | None = None
        self._seen: dict[str, _Seen] = {}
        self._graph: Graph | None = None

    def graph(self) -> Graph:
        """The graph of the files as they are now. A file that does not parse counts as it last did.

        Raises:
            ToolError: there is no git repository, or git cannot be run.
        """
        with self._lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the parser has to say of the files is not for our log
            root = self._root = self._root or Path(_git(self._path, "rev-parse", "--show-toplevel").rstrip("\n"))
            listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py")
            seen: dict[str, _Seen] = {}
            names: set[str] = set()
            for path in sorted(set(filter(None, listed.split("\0")))):
                name = module_name(path)
                if name in names:
                    name = module_name(path, whole=True)
                names.add(name)
                now = _look(root, path, name, self._seen.get(path))
                if now is not None:
                    seen[path] = now
            modules = [one.module for one in seen.values() if one.module]
            if self._graph is None or modules != [one.module for one in self._seen.values() if one.module]:
                self._graph = Graph(modules)
            self._seen = seen
            return self._graph

    def source(self, scope: Scope) -> str:
        """A symbol's lines, below where they are."""
        assert self._root is not None, "scopes come from a graph"
        lines = (self._root / scope.path).read_text("utf-8", "replace").splitlines()
        first, last = scope.lines
        return "\n".join([f"{scope.path}:{first}", *lines[first - 1 : last]])


def _look(root: Path, path: str, name: str, before: _Seen | None) -> _Seen | None:
    place = root / path
    try:
        if place.is_symlink() or not place.is_file():
            return None
        status = place.stat()
        stamp = (status.st_mtime_ns, status.st_size)
        if before is not None and before.name == name and before.stamp == stamp:
            return before
        if status.st_size > _LARGEST:
            return None
        source = place.read_bytes()
    except OSError:
        return None
    settled = stamp if time.time() - status.st_mtime > _SETTLED else None
    digest = hashlib.blake2b(source, digest_size=16).digest()
    if before is not None and before.name == name and before.digest == digest:
        return before._replace(stamp=settled)
    try:
        module: Scope | None = read(source, path, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        module = before.module if before is not None and before.name == name else None
    return _Seen(settled, digest, name, module)


def _git(where: Path, *arguments: str) -> str:
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(where), *arguments]  # it names a program to run
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and the arguments are ours
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"git cannot be run: {error}.") from None
    if done.returncode:
        raise ToolError(f"git: {done.stderr.decode(errors='replace').strip()}")
    return os.fsdecode(done.stdout)


def module_name(path: str, *, whole: bool = False) -> str:
    """As importers say it: from below the last `src`, or from the top; a package's for its `__init__.py`."""
    parts = path.removesuffix(".py").split("/")
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    if not whole and "src" in parts[:-1]:
        parts = parts[len(parts) - parts[::-1].index("src") :]
    return ".".join(parts)
