"""A folder out of which no path and no link leads.

Each folder of a path is opened from the one above it, and never through a symbolic link (`O_NOFOLLOW`): a link that
somebody puts there between a check and its use leads nowhere either, because there is no check before the use. A file
that has a second name, a hard link, may belong to somebody else, and is refused.
"""

import contextlib
import fnmatch
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from deltamcp import ToolError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""`O_NONBLOCK`: to open a pipe would wait for its other end."""


class Sandbox:
    def __init__(self, root: Path) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def list(self, path: str) -> list[dict[str, Any]]:
        with self._folder(_parts(path)) as folder, os.scandir(folder) as entries:
            return sorted((_described(entry) for entry in entries), key=lambda entry: str(entry["name"]))

    def read(self, path: str) -> str:
        with self._file(path, os.O_RDONLY) as file, os.fdopen(os.dup(file), encoding="utf-8", errors="replace") as text:
            return text.read()

    def write(self, path: str, text: str) -> None:
        with self._file(path, os.O_WRONLY | os.O_CREAT) as file:
            os.ftruncate(file, 0)
            with os.fdopen(os.dup(file), "w", encoding="utf-8") as stream:
                stream.write(text)

    def search(self, pattern: str) -> Iterator[str]:
        """The paths of files whose names fit a glob."""
        for folder, _, names, _ in os.fwalk(".", dir_fd=self._root, follow_symlinks=False):
            for name in fnmatch.filter(sorted(names), pattern):
                yield PurePosixPath(folder, name).as_posix()

    @contextlib.contextmanager
    def _folder(self, parts: tuple[str, ...]) -> Iterator[int]:
        descriptor = os.dup(self._root)
        try:
            for part in parts:
                below = _open(part, _FOLDER, descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _file(self, path: str, flags: int) -> Iterator[int]:
        parts = _parts(path)
        if not parts:
            raise ToolError("That is the folder itself.")
        with self._folder(parts[:-1]) as folder:
            file = _open(parts[-1], flags | _FILE, folder)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise ToolError(f"{path} is no file of this folder alone.")
            yield file
        finally:
            os.close(file)


def _parts(path: str) -> tuple[str, ...]:
    parts = PurePosixPath(path).parts
    if "\0" in path or ".." in parts or path.startswith("/"):
        raise ToolError(f"{path!r} leads out of the folder; give a path below it.")
    return parts


def _open(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags, 0o644, dir_fd=folder)
    except OSError as error:
        raise ToolError(f"{name} cannot be opened: {error.strerror}.") from None


def _described(entry: "os.DirEntry[str]") -> dict[str, Any]:
    kind = "link" if entry.is_symlink() else "folder" if entry.is_dir(follow_symlinks=False) else "file"
    return {"name": entry.name, "kind": kind, "bytes": entry.stat(follow_symlinks=False).st_size}
