"""Tool definitions as text for a model: a line in a list, a signature, a signature with notes, or the full text.

    list_issues(owner, repo, state?:"open"|"closed"=open, limit?:int=30)

Required parameters come first, `?` marks the others, the default type is text, `=` gives the default value. A real tool
costs some 270 tokens as JSON Schema and 30 as such a line.
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
"""The budget of a signature with notes, which decides how much detail it has; real tools stay under 90 on average."""

_MAX_REQUIRED_SHOWN = 8
"""Required parameters that a short signature names."""


def signature_line(tool: Mapping[str, JSON], name: str | None = None) -> str:
    """Writes a tool's name and parameters on one line."""
    return f"{name or tool.get('name')}({', '.join(Parameters(_input_schema(tool), _SIGNATURE_DETAIL).inline_texts())})"


def signature_with_notes(tool: Mapping[str, JSON], name: str | None = None) -> str:
    """Writes the signature, a note for each parameter and the description, with less detail for larger tools."""
    for detail in _NOTES_DETAILS:
        text = _signature_text(tool, name, detail)
        if tokens.count(text) <= NOTES_TOKENS:
            return text
    short = _short_signature(tool, name or str(tool.get("name")))
    return f"{short}\n{description_text(tool.get('description'), 120)}".strip()


def full_text(tool: Mapping[str, JSON], name: str | None = None) -> str:
    """Writes every parameter with its type, choices, default, limits and description."""
    return _signature_text(tool, name, _FULL_DETAIL)


def signature_and_summary(tool: Mapping[str, JSON], name: str, summary: str, max_tokens: int) -> str:
    """Writes signature and summary within a budget; leaves out types first, then names, then the summary."""
    schema = _input_schema(tool)
    required, optional = parameter_names(schema)
    names = [*required, *(f"{one}?" for one in optional)]
    suffix = f": {summary}" if summary else ""
    for parameters in (
        Parameters(schema, _SIGNATURE_DETAIL).inline_texts(),
        Parameters(schema, NAMES_ONLY).inline_texts(),
        names,
    ):
        text = f"{name}({', '.join(parameters)}){suffix}"
        if tokens.count(text) <= max_tokens:
            return text
    short = _short_signature(tool, name)
    for text in (f"{short}{suffix}", f"{name}(…){suffix}"):
        if tokens.count(text) <= max_tokens:
            return text
    return f"{name}(…)"


def _short_signature(tool: Mapping[str, JSON], name: str) -> str:
    """Writes the names of the first required parameters, and the number of optional ones."""
    required, optional = parameter_names(_input_schema(tool))
    shown = [*required[:_MAX_REQUIRED_SHOWN], *(["…"] if len(required) > _MAX_REQUIRED_SHOWN else [])]
    return f"{name}({', '.join([*shown, *([f'+{len(optional)} optional'] if optional else [])])})"


def _input_schema(tool: Mapping[str, JSON]) -> dict[str, Any]:
    schema = tool.get("inputSchema")
    return schema if isinstance(schema, dict) else {}


def _signature_text(tool: Mapping[str, JSON], name: str | None, detail: TextDetail) -> str:
    shown_name = name or str(tool.get("name"))
    rows = Parameters(_input_schema(tool), detail).rows()
    if any(row.note for row in rows):
        head = "\n".join([f"{shown_name}(", *(f"{text} # {note}" if note else text for text, note in rows), ")"])
    else:
        head = f"{shown_name}({', '.join(row.text for row in rows)})"
    description = description_text(tool.get("description"), detail.description_chars)
    return f"{head}\n{description}" if description else head
