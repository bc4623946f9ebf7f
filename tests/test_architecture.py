"""What the layout and the names promise: one meaning for a class name, versions in one table, transports apart."""

import ast
import functools
import json
import pkgutil
import re
import subprocess
import sys
from collections import Counter

import pytest

import deltamcp
from bench.code_size import MAX_MODULES
from tests.support.paths import ROOT
from tests.support.public_names import RECORD, public_names

SOURCE = ROOT / "src" / "deltamcp"
VERSION = re.compile(r"20\d\d-\d\d-\d\d|delta-mcp/\d.*")
IRREGULAR = {
    "told",
    "held",
    "kept",
    "made",
    "said",
    "sent",
    "shown",
    "known",
    "gone",
    "given",
    "taken",
    "written",
    "meant",
}
PUBLIC = {"client/reply.py": {"told"}, "context.py": {"accepted"}}
"""Participles that users know by now."""


@pytest.fixture(scope="module", autouse=True)
def read_modules() -> None:
    """The test that comes first does not take longer than the others."""
    modules()


@functools.cache
def modules() -> dict[str, ast.Module]:
    """The syntax trees of the library, which every process of a run would read if they were made on import."""
    return {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}


def test_a_class_name_occurs_once():
    # gcf is a library of its own, and exports `Session`, `Symbol`, `Edge` by the names of its specification.
    names = Counter(
        node.name for tree in modules().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert {name: count for name, count in names.items() if count > 1} == {}


def test_no_function_is_named_by_a_bare_participle():
    found = {
        f"{path}:{node.name}"
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and is_participle(node.name.strip("_"))
        and not is_property(node)
        and node.name not in PUBLIC.get(path, ())
    }
    assert found == set()


def is_participle(name: str) -> bool:
    return "_" not in name and (name in IRREGULAR or (name.endswith("ed") and name not in {"feed", "embed", "need"}))


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A contextmanager or property may say what it is: `with deadline.paused()`."""
    return any("contextmanager" in ast.unparse(one) or "property" in ast.unparse(one) for one in node.decorator_list)


def test_versions_are_spelt_in_the_version_table_only():
    literals = {
        f"{path}:{node.lineno}"
        for path, tree in modules().items()
        if path != "dialects/versions.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and VERSION.fullmatch(node.value)
    }
    assert literals == set()


def imports(path: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(modules()[path]):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def test_http_imports_nothing_from_the_transports_on_pipes():
    http = [path for path in modules() if path.startswith(("transports/http/", "transports/sessions/"))]
    assert http
    for path in http:
        assert not {name for name in imports(path) if name.startswith("deltamcp.transports.stdio")}, path


def test_the_engine_and_the_calls_know_no_dialect_by_name():
    for path in (path for path in modules() if path.startswith(("calls/", "delivery/"))):
        known = imports(path) & {f"deltamcp.dialects.{name}" for name in ("handshake", "modern", "delta_mcp")}
        assert not known, path


def test_the_top_level_lists_exactly_the_public_names():
    assert dir(deltamcp) == sorted(deltamcp.__all__)
    for name in deltamcp.__all__:
        assert getattr(deltamcp, name) is not None


def test_what_most_programs_need_late_or_never_is_loaded_late():
    """Import, help and start are fast because of it; a module that joins another may load a package with it."""
    late = "docket redis jmespath re2 sqlite3 httpx2 grpc uvicorn cryptography jwt pydantic_core rich rapidfuzz"
    script = (
        "import sys, deltamcp.server, deltamcp.cli.main, deltamcp.cli.verbs.serve, deltamcp.cli.verbs.gateway\n"
        f"print(*{{*{late.split()}}} & {{*sys.modules}})"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_no_folder_is_crowded():
    sizes = Counter(path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
    assert {folder for folder, modules in sizes.items() if modules > MAX_MODULES} == set()


def test_what_users_call_by_name_is_as_recorded():
    """If a name changes on purpose, `python -m tests.support.public_names` records it, and CHANGELOG.md tells it."""
    assert public_names() == json.loads(RECORD.read_text())


def test_nothing_installed_knows_of_data_beside_the_repository():
    assert [path for path in SOURCE.rglob("*.py") if re.search(r"\.\./shared|DELTA_MCP_SHARED", path.read_text())] == []


def test_every_module_that_the_documentation_has_users_import_is_there():
    pages = "\n".join(page.read_text() for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
    named = set(re.findall(r"\bdeltamcp(?:\.[a-z_0-9]+)+(?:\.[A-Z]\w*)?", pages)) - {"deltamcp.calls"}  # a logger
    assert {"deltamcp.gcf", "deltamcp.runtime.http_request_id.HttpRequestIdFilter"} <= named
    for name in named:
        pkgutil.resolve_name(name)
