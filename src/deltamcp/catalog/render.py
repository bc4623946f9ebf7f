"""Tool definitions as text for a model: a line in a list, a signature, a signature with notes, every word.

    list_issues(owner, repo, state?:"open"|"closed"=open, limit?:int=30)

Required parameters come first, `?` marks the others, text is the type where none is said, `=` gives the
default. A real tool costs some 270 tokens as JSON Schema and 30 so.
"""

from collections.abc import Mapping
from typing import Any

from deltamcp import tokens
from deltamcp.catalog.parameters import NAMES, UNBOUNDED, Detail, Parameters, names, said
from deltamcp.values import JSON

_SIGNATURE = Detail(depth=2, choices=12, note=0, description=0)
_WHOLE = Detail(UNBOUNDED, UNBOUNDED, UNBOUNDED, UNBOUNDED, limits=True)
_NOTED = (
    Detail(depth=3, choices=12, note=80, description=200),
    Detail(depth=2, choices=8, note=60, description=160),
    Detail(depth=1, choices=6, note=40, description=160),
    Detail(depth=0, choices=4, note=30, description=120),
    Detail(depth=0, choices=3, note=0, description=120),
)
NOTED_TOKENS = 170
"""What a signature with notes may cost before less is said; real tools then stay under 90 on average."""

_REQUIRED_SHOWN = 8
"""Parameters named where not even their names have room."""


def signature(tool: Mapping[str, JSON], name: str | None = None) -> str:
    """A tool's name and parameters on one line."""
    return f"{name or tool.get('name')}({', '.join(Parameters(_schema(tool), _SIGNATURE).inline())})"


def noted(tool: Mapping[str, JSON], name: str | None = None) -> str:
    """Signature, a note for each parameter, description; cut at sentence ends, shorter for larger tools."""
    for detail in _NOTED:
        made = _lines(tool, name, detail)
        if tokens.count(made) <= NOTED_TOKENS:
            return made
    return f"{_short(tool, name or str(tool.get('name')))}\n{said(tool.get('description'), 120)}".strip()


def whole(tool: Mapping[str, JSON], name: str | None = None) -> str:
    """Every parameter, type, choice, default, limit and description, in text."""
    return _lines(tool, name, _WHOLE)


def line(tool: Mapping[str, JSON], name: str, summary: str, budget: int) -> str:
    """Signature and summary within so many tokens: types, then names, then the summary are left out for it."""
    schema = _schema(tool)
    required, optional = names(schema)
    named = [*required, *(f"{one}?" for one in optional)]
    end = f": {summary}" if summary else ""
    for parameters in (
        Parameters(schema, _SIGNATURE).inline(),
        Parameters(schema, NAMES).inline(),
        named,
    ):
        made = f"{name}({', '.join(parameters)}){end}"
        if tokens.count(made) <= budget:
            return made
    short = _short(tool, name)
    for made in (f"{short}{end}", f"{name}(…){end}"):
        if tokens.count(made) <= budget:
            return made
    return f"{name}(…)"


def _short(tool: Mapping[str, JSON], name: str) -> str:
    """The required parameters by name, as far as that goes, and how many others there are."""
    required, optional = names(_schema(tool))
    shown = [*required[:_REQUIRED_SHOWN], *(["…"] if len(required) > _REQUIRED_SHOWN else [])]
    return f"{name}({', '.join([*shown, *([f'+{len(optional)} optional'] if optional else [])])})"


def _schema(tool: Mapping[str, JSON]) -> dict[str, Any]:
    schema = tool.get("inputSchema")
    return schema if isinstance(schema, dict) else {}


def _lines(tool: Mapping[str, JSON], name: str | None, detail: Detail) -> str:
    shown = name or str(tool.get("name"))
    rows = Parameters(_schema(tool), detail).rows()
    if any(row.note for row in rows):
        head = "\n".join([f"{shown}(", *(f"{text} # {note}" if note else text for text, note in rows), ")"])
    else:
        head = f"{shown}({', '.join(row.text for row in rows)})"
    described = said(tool.get("description"), detail.description)
    return f"{head}\n{described}" if described else head
