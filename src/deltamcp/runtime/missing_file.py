"""The error of a file that a user or a configuration names and that is not there, with the files that may be meant."""

from pathlib import Path

from deltamcp.errors import ConfigurationError

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
