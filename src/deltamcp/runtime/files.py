"""Files that only their owner reads, which several programs may use at once; folders; files that are not there."""

import contextlib
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from deltamcp.errors import ConfigurationError

_FOLDERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "win32": {
        "state": ("LOCALAPPDATA", "AppData", "Local"),
        "cache": ("LOCALAPPDATA", "AppData", "Local"),
        "config": ("APPDATA", "AppData", "Roaming"),
    },
    "darwin": {
        "state": ("", "Library", "Application Support"),
        "cache": ("", "Library", "Caches"),
        "config": ("", "Library", "Application Support"),
    },
    "linux": {
        "state": ("XDG_STATE_HOME", ".local", "state"),
        "cache": ("XDG_CACHE_HOME", ".cache"),
        "config": ("XDG_CONFIG_HOME", ".config"),
    },
}
"""By system and purpose: the variable that names the folder, and where it is in the user's home without it."""


FileState = tuple[int, int, int] | None


def file_state(path: Path) -> FileState:
    """Returns what differs after a file was changed; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def make_own_folder(folder: Path) -> None:
    """
    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name == "posix" and folder.stat().st_mode & 0o077:
        folder.chmod(0o700)


def read_own_file(path: Path, max_bytes: int) -> bytes | None:
    """Returns the content of a file that belongs to the user, up to a size; None if there is none."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if os.name == "posix":
                if status.st_uid != os.geteuid():
                    return None
                if status.st_mode & 0o077:
                    os.fchmod(file.fileno(), 0o600)
            return file.read(max_bytes)
    except OSError:
        return None


def open_own_file_to_append(path: Path) -> int:
    """Returns the descriptor of a file that belongs to the user, and that nobody else reads from now on.

    The path may also lead to a terminal, a pipe or another device, which stay as they are.

    Raises:
        OSError: it cannot be opened, or it is another user's file or link; `strerror` says which.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    if os.name != "posix":
        return os.open(path, flags, 0o600)
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        if path.lstat().st_uid not in (os.geteuid(), 0):  # /dev/stdout is a link of root
            raise PermissionError(errno.EPERM, "it is another user's link") from None
        descriptor = os.open(path, flags, 0o600)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            if status.st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "it is another user's file")
            if status.st_mode & 0o077:
                os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def replace_own_file(path: Path, content: bytes) -> None:
    """Replaces a file at once: a program that reads it gets the old or the new content, never a part.

    Raises:
        OSError: the folder cannot be made or written to.
    """
    with _written_beside(path, content) as written:
        written.replace(path)


def add_own_file(path: Path, content: bytes) -> None:
    """Writes a file at once unless there is one already; of several programs that do so at a time, one succeeds.

    Raises:
        OSError: the folder cannot be made or written to.
    """
    with _written_beside(path, content) as written, contextlib.suppress(FileExistsError):
        os.link(written, path)


@contextlib.contextmanager
def _written_beside(path: Path, content: bytes) -> Iterator[Path]:
    """Writes a file of another name into the same folder, which is deleted at the end if it still has that name."""
    make_own_folder(path.parent)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


@contextlib.contextmanager
def open_lock_file(path: Path) -> Iterator[Any]:
    """Opens the file whose lock stands for another one; gives None where no file can be written."""
    try:
        make_own_folder(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield None
        return
    with os.fdopen(descriptor, "rb+") as file:
        yield file


def try_lock(file: Any) -> bool:
    """Locks a file for this program until it closes the file; returns False if another program has locked it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def user_folder(purpose: Literal["state", "cache", "config"]) -> Path:
    """Returns the user's folder of delta-mcp for a purpose: XDG's on Linux, the system's own elsewhere.

    Raises:
        ConfigurationError: the user has no home, as in some containers.
    """
    variable, *names = _FOLDERS.get(sys.platform, _FOLDERS["linux"])[purpose]
    base = Path(os.environ.get(variable) or "")
    if not base.is_absolute():  # the XDG specification has programs ignore other paths
        base = user_home().joinpath(*names)
    return base / "delta-mcp"


def user_home() -> Path:
    """
    Raises:
        ConfigurationError: the user has no home, as in some containers.
    """
    try:
        return Path.home()
    except RuntimeError:
        raise ConfigurationError("There is no home to keep files in; set HOME, or give a folder.") from None


_MAX_NAMED = 3
_MIN_SCORE = 65
"""How similar the name of a file is to a suggested one, of 100."""
_MAX_LISTED = 500
"""How many files of a folder are looked at."""


def missing_file_error(path: Path) -> ConfigurationError:
    """Returns the error of a file that is not there: it names similar files of the folder, or those of its kind."""
    folder = path.expanduser().parent
    if not folder.is_dir():
        return ConfigurationError(f"There is no file {path}, and no folder {folder}; is the path right?")
    names = _file_names(folder)
    present = [name for name in names if Path(name).suffix == path.suffix]
    similar = _similar(path.name, names)
    if similar:
        return ConfigurationError(f"There is no file {path}; did you mean {_join(path, similar, 'or')}?")
    if present and len(present) <= _MAX_NAMED:
        is_there = "there is" if len(present) == 1 else "there are"
        return ConfigurationError(f"There is no file {path}; {is_there} {_join(path, present, 'and')}.")
    place = "" if path.is_absolute() else f" in {folder.resolve()}"
    return ConfigurationError(f"There is no file {path}{place}; name one that is there.")


def _join(path: Path, names: list[str], word: str) -> str:
    return f" {word} ".join(str(path.with_name(name)) for name in names)


def _file_names(folder: Path) -> list[str]:
    try:
        names = [path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    except OSError:  # nobody may list the folder
        return []
    return sorted(names)[:_MAX_LISTED]


def _similar(name: str, names: list[str]) -> list[str]:
    from rapidfuzz import fuzz, process  # 30 ms to import, needed only where a name is wrong

    found = process.extract(
        name, names, scorer=fuzz.ratio, processor=str.casefold, limit=_MAX_NAMED, score_cutoff=_MIN_SCORE
    )
    return [match for match, *_ in found]
