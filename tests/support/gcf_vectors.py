"""Which published cases of GCF concern which profile."""

import json
from pathlib import Path
from typing import Any

KEYED_FOLDERS = {"generic-delta", "generic-delta-session", "generic-pack-root"}
GENERIC_CLAIMS = {
    ("conformance", "encode"),
    ("conformance", "roundtrip"),
    ("conformance", "roundtrip-wire"),
    ("conformance", "encode-error"),
    ("conformance", "decode"),
    ("conformance", "error"),
    ("conformance-v1/generic", ""),
    ("conformance-v1/errors", ""),
}
"""The directories and operations of the cases that concern the generic profile."""


def generic_claim(root: Path, path: Path, case: dict[str, Any]) -> tuple[str, str] | None:
    """The directory and operation of a case, if it concerns the generic profile."""
    top, folder = path.relative_to(root).parts[:2]
    where = f"{top}/{folder}" if top == "conformance-v1" else top
    claim = (where, case.get("operation", ""))
    texts = [text for text in (case.get("input"), case.get("expected")) if isinstance(text, str)]
    headed = "GCF" if where == "conformance-v1/errors" else "GCF profile=graph"
    graph = folder.startswith("graph") or any(text.startswith(headed) for text in texts)
    return claim if claim in GENERIC_CLAIMS and not graph and folder not in KEYED_FOLDERS else None


def generic_cases(root: Path) -> list[Path]:
    """The cases under `root`, the directory of both suites, that concern the generic profile."""
    return [path for path in sorted(root.rglob("*.json")) if generic_claim(root, path, json.loads(path.read_bytes()))]


def graph_cases(root: Path) -> list[Path]:
    """The files below `root` that concern graphs or keyed sets."""
    return [path for path in sorted(root.glob("conformance*/*/*.json")) if _is_graph_case(path)]


def _is_graph_case(path: Path) -> bool:
    case = json.loads(path.read_text())
    if path.parts[-3] == "conformance-v1":
        headless = path.parent.name == "errors" and not case["input"].startswith("GCF")
        return path.parent.name != "generic" and not headless
    if path.parent.name in KEYED_FOLDERS or path.parent.name.startswith("graph-"):
        return True
    return case["operation"] == "graph-stream-encode" or str(case.get("input")).startswith("GCF profile=graph")
