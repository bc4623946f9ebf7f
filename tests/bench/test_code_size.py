"""The count of modules and lines of code."""

import pytest

from bench.code_size import FolderSize, count_lines, folder_sizes, importers, small_modules


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", 0),
        ('"""What it is."""\n\nx = 1\n', 1),
        ("x = 1  # one\n# and no more\n\n", 1),
        ("call(\n    # why\n    1,\n)\n", 3),
        ('def f():\n    """Does it.\n\n    Well.\n    """\n', 1),
        ('x = 1\n"""One."""\n', 1),
        ('x = """a\n# b\n\nc"""\n', 4),
    ],
)
def test_docstrings_comments_and_blanks_do_not_count(text, lines):
    assert count_lines(text) == lines


@pytest.fixture
def package(tmp_path):
    files = {
        "__init__.py": "",
        "one.py": "from package.inner import two\n",
        "inner/__init__.py": "",
        "inner/two.py": "from package.inner.three import X\n",
        "inner/three.py": "X = 1\nY = 2\n",
    }
    for name, text in files.items():
        path = tmp_path / "package" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "package"


def test_a_folder_counts_what_lies_directly_in_it(package):
    assert folder_sizes(package) == {".": FolderSize(2, 1), "inner": FolderSize(3, 3)}


def test_importers_are_found_in_both_spellings(package):
    counts = importers(package)
    assert counts["package.inner.two"] == counts["package.inner.three"] == 1
    assert [(path.name, size) for path, size in small_modules(package)] == [("three.py", 2), ("two.py", 1)]
