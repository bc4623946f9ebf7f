"""`python -m bench.code_size`: modules, and lines of code without docstrings, comments and blanks, by folder.

`--small` lists the modules of fewer than 60 lines of code that one module alone imports: candidates to be merged.
"""

import argparse
import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "deltamcp"
MAX_MODULES = 20
"""How many modules a folder may have."""
SMALL_LINES = 60
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


class FolderSize(NamedTuple):
    modules: int
    lines: int


def count_lines(text: str) -> int:
    """Counts the lines of a module on which there is code; a string that nothing takes is a docstring."""
    occupied: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            occupied.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            occupied.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(occupied)


def modules(source: Path = SOURCE) -> list[Path]:
    return sorted(source.rglob("*.py"))


def folder_sizes(source: Path = SOURCE) -> dict[str, FolderSize]:
    """Says what lies directly in each folder, by its path below `source`."""
    sizes: dict[str, FolderSize] = {}
    for path in modules(source):
        folder = path.parent.relative_to(source).as_posix()
        known = sizes.get(folder, FolderSize(0, 0))
        sizes[folder] = FolderSize(known.modules + 1, known.lines + count_lines(path.read_text()))
    return sizes


def importers(source: Path = SOURCE) -> Counter[str]:
    """Counts, for each module of the package, the modules of it that import it."""
    names = {_module_name(path, source): path for path in modules(source)}
    return Counter(name for path in names.values() for name in set(_imported(path)) & set(names))


def small_modules(source: Path = SOURCE) -> list[tuple[Path, int]]:
    """Lists the modules that only one other module imports, and their lines of code."""
    counts = importers(source)
    sizes = [(path, count_lines(path.read_text())) for path in modules(source) if path.name != "__init__.py"]
    return [(path, size) for path, size in sizes if size < SMALL_LINES and counts[_module_name(path, source)] == 1]


def _module_name(path: Path, source: Path) -> str:
    return ".".join((source.name, *path.relative_to(source).with_suffix("").parts)).removesuffix(".__init__")


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.code_size", description=__doc__)
    parser.add_argument("--small", action="store_true", help="list the candidates to be merged")
    if parser.parse_args().small:
        for path, lines in small_modules():
            print(f"{lines:4} {path.relative_to(SOURCE)}")
        return
    sizes = folder_sizes()
    for folder, size in sizes.items():
        print(f"{folder:24}{size.modules:5}{size.lines:8,}{'  crowded' if size.modules > MAX_MODULES else ''}")
    total = FolderSize(sum(size.modules for size in sizes.values()), sum(size.lines for size in sizes.values()))
    print(f"{'modules, lines of code':24}{total.modules:5}{total.lines:8,}")
    print(f"{len(small_modules())} of fewer than {SMALL_LINES} lines have one importer")


if __name__ == "__main__":
    main()
