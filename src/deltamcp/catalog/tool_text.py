"""Tool definitions as text for a model: a line in a list, a signature, a signature with notes, every word.

    list_issues(owner, repo, state?:"open"|"closed"=open, limit?:int=30)

Required parameters come first, `?` marks the others, text is the type where none is said, `=` gives the
default. A real tool costs some 270 tokens as JSON Schema and 30 so.
"""

from collections.abc import Mapping
from typing import Any

from deltamcp import tokens
from deltamcp.catalog.parameter_text import (
    NAMES_ONLY,
    UNBOUNDED,
    Parameters,
    TextDetail,
    description_text,
    parameter_names,
)
from deltamcp.values import JSON

_SIGNATURE_DETAIL = TextDetail(depth=2, max_choices=12, note_chars=0, description_chars=0)
_FULL_DETAIL = TextDetail(UNBOUNDED, UNBOUNDED, UNBOUNDED, UNBOUNDED, limits=True)
_NOTES_DETAILS = (
    TextDetail(depth=3, max_choices=12, note_chars=80, description_chars=200),
    TextDetail(depth=2, max_choices=8, note_chars=60, description_chars=160),
    TextDetail(depth=1, max_choices=6, note_chars=40, description_chars=160),
    TextDetail(depth=0, max_choices=4, note_chars=30, description_chars=120),
    TextDetail(depth=0, max_choices=3, note_chars=0, description_chars=120),
)
NOTES_TOKENS = 170
"""What a signature with notes may cost before less is said; real tools then stay under 90 on average."""

_MAX_REQUIRED_SHOWN = 8
"""Parameters named where not even their names have room."""


def signature_line(tool: Mapping[str, JSON], name: str | None = None) -> str:
    """A tool's name and parameters on one line."""
    return f"{name or tool.get('name')}({', '.join(Parameters(_input_schema(tool), _SIGNATURE_DETAIL).inline_texts())})"


def signature_with_notes(tool: Mapping[str, JSON], name: str | None = None) -> str:
    """Signature, a note for each parameter, description; cut at sentence ends, shorter for larger tools."""
    for detail in _NOTES_DETAILS:
        made = _signature_text(tool, name, detail)
        if tokens.count(made) <= NOTES_TOKENS:
            return made
    short = _short_signature(tool, name or str(tool.get("name")))
    return f"{short}\n{description_text(tool.get('description'), 120)}".strip()


def full_text(tool: Mapping[str, JSON], name: str | None = None) -> str:
    """Every parameter, type, choice, default, limit and description, in text."""
    return _signature_text(tool, name, _FULL_DETAIL)


def signature_and_summary(tool: Mapping[str, JSON], name: str, summary: str, budget: int) -> str:
    """Signature and summary within so many tokens: types, then names, then the summary are left out for it."""
    schema = _input_schema(tool)
    required, optional = parameter_names(schema)
    named = [*required, *(f"{one}?" for one in optional)]
    end = f": {summary}" if summary else ""
    for parameters in (
        Parameters(schema, _SIGNATURE_DETAIL).inline_texts(),
        Parameters(schema, NAMES_ONLY).inline_texts(),
        named,
    ):
        made = f"{name}({', '.join(parameters)}){end}"
        if tokens.count(made) <= budget:
            return made
    short = _short_signature(tool, name)
    for made in (f"{short}{end}", f"{name}(…){end}"):
        if tokens.count(made) <= budget:
            return made
    return f"{name}(…)"


def _short_signature(tool: Mapping[str, JSON], name: str) -> str:
    """The required parameters by name, as far as that goes, and how many others there are."""
    required, optional = parameter_names(_input_schema(tool))
    shown = [*required[:_MAX_REQUIRED_SHOWN], *(["…"] if len(required) > _MAX_REQUIRED_SHOWN else [])]
    return f"{name}({', '.join([*shown, *([f'+{len(optional)} optional'] if optional else [])])})"


def _input_schema(tool: Mapping[str, JSON]) -> dict[str, Any]:
    schema = tool.get("inputSchema")
    return schema if isinstance(schema, dict) else {}


def _signature_text(tool: Mapping[str, JSON], name: str | None, detail: TextDetail) -> str:
    shown = name or str(tool.get("name"))
    rows = Parameters(_input_schema(tool), detail).rows()
    if any(row.note for row in rows):
        head = "\n".join([f"{shown}(", *(f"{text} # {note}" if note else text for text, note in rows), ")"])
    else:
        head = f"{shown}({', '.join(row.text for row in rows)})"
    described = description_text(tool.get("description"), detail.description_chars)
    return f"{head}\n{described}" if described else head
