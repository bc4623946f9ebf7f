"""Tool definitions as text for a model: a line in a list, a signature, a signature with notes, or the full text.

    list_issues(owner, repo, state?:"open"|"closed"=open, limit?:int=30)

Required parameters come first, `?` marks the others, the default type is text, `=` gives the default value. A real tool
costs some 270 tokens as JSON Schema and 30 as such a line.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from deltamcp import tokens
from deltamcp.catalog.text import prose
from deltamcp.catalog.text.clean_text import json_text
from deltamcp.catalog.text.parameter_text import UNBOUNDED, Parameters, TextDetail, description_text
from deltamcp.values import JSON

_FULL_DETAIL = TextDetail(UNBOUNDED, UNBOUNDED, UNBOUNDED, UNBOUNDED, UNBOUNDED, limits=True)
_MAX_DEPTH = 6
"""The levels of required fields that a text with a budget names; real bodies are hardly deeper."""
_OPTIONAL_NAMES = TextDetail(_MAX_DEPTH, 0, max_choices=4, optional_types=False, max_nested_optional=4)
_REQUIRED_ONLY = TextDetail(_MAX_DEPTH, 0, max_choices=4, optional_types=False, max_optional=0, max_nested_optional=0)
_SIGNATURE_DETAILS = (
    TextDetail(_MAX_DEPTH, 2, max_choices=12),
    TextDetail(_MAX_DEPTH, 1, max_choices=8, max_nested_optional=12),
    TextDetail(_MAX_DEPTH, 0, max_choices=5, max_nested_optional=8),
    TextDetail(_MAX_DEPTH, 1, max_choices=5, optional_types=False, max_nested_optional=6),
    _OPTIONAL_NAMES,
    *(_OPTIONAL_NAMES._replace(max_optional=shown) for shown in (12, 8, 6, 5, 4, 3, 2, 1, 0)),
    *(_OPTIONAL_NAMES._replace(max_optional=0, max_nested_optional=shown) for shown in (3, 2, 1)),
    *(_REQUIRED_ONLY._replace(max_choices=shown) for shown in (4, 3, 2, 0)),
    *(_REQUIRED_ONLY._replace(max_choices=0, depth=depth) for depth in (4, 3, 2, 1, 0)),
    _REQUIRED_ONLY._replace(depth=0, required_types=False),
)
"""The details of a line, the most first. No row names a required field that the row before it leaves out."""
_FEWER_NAMES = tuple(
    _REQUIRED_ONLY._replace(depth=0, required_types=False, max_required=shown) for shown in (12, 8, 6, 5, 4, 3, 2, 1)
)
_NOTES_DETAILS = (
    TextDetail(_MAX_DEPTH, 3, max_choices=12, note_chars=80, description_chars=200),
    TextDetail(_MAX_DEPTH, 2, max_choices=8, note_chars=60, description_chars=160),
    TextDetail(_MAX_DEPTH, 2, max_choices=8, note_chars=40, description_chars=120),
    TextDetail(_MAX_DEPTH, 2, max_choices=6, note_chars=30, description_chars=120),
    TextDetail(_MAX_DEPTH, 2, max_choices=12, description_chars=120),
    TextDetail(_MAX_DEPTH, 2, max_choices=6, description_chars=120),
    TextDetail(_MAX_DEPTH, 2, max_choices=4, description_chars=120),
    TextDetail(_MAX_DEPTH, 2, max_choices=6, description_chars=120, optional_types=False),
    TextDetail(_MAX_DEPTH, 1, max_choices=6, note_chars=40, description_chars=120),
    TextDetail(_MAX_DEPTH, 1, max_choices=6, note_chars=30, description_chars=120),
    TextDetail(_MAX_DEPTH, 1, max_choices=4, description_chars=120),
    TextDetail(_MAX_DEPTH, 1, max_choices=6, description_chars=120, optional_types=False),
    TextDetail(_MAX_DEPTH, 0, max_choices=6, note_chars=30, description_chars=120, max_nested_optional=12),
    *(detail._replace(description_chars=chars) for chars in (120, 0) for detail in _SIGNATURE_DETAILS),
    *_FEWER_NAMES,
)
NOTES_TOKENS = 170
"""The budget of a signature with notes, which decides how much detail it has; real tools stay under 90 on average."""
_OMISSION = re.compile(r'[^\s"]+\(.*…')
_IMITATION = re.compile(r"[\w-]+(?:\.[\w-]+)+[(:]|[\w.-]+\(|What …|Run with|e\.g\. \{|(?:observed|returns): |\)")
"""The beginning of a description that could be taken for another operation, or for a note of ours."""
_MEMBER = re.compile(r'\{[\w"]')
_PART_DETAIL = TextDetail(_MAX_DEPTH, 2, max_choices=40, limits=True)
_PART_TOKENS = 80
"""The budget of what an error says about the part of the arguments that it is about."""
_PART_NOTE_CHARS = 80
_SHORTER_SUMMARY_CHARS = 30
"""The characters of a summary on a line that has too little room for the names of required parameters."""
_SIGNATURE_TOKENS = 120
"""The budget of a signature in an error message."""
_MAX_STEPS = 2000
"""Nodes of a schema that a text with a budget visits; a text that needs more does not fit its budget."""
_MAX_EXHAUSTED = 6
"""Texts of one tool that visit too many nodes, before the tool is written as `name(…)`."""
_MAX_CHARS_PER_TOKEN = 64
"""Longer texts than the budget times this are not counted; only runs of one character have so few tokens."""


def signature_line(tool: Mapping[str, JSON], name: str | None = None, max_tokens: int = _SIGNATURE_TOKENS) -> str:
    """Writes a tool's name and parameters on one line within a budget."""
    return signature_and_summary(tool, name or str(tool.get("name")), "", max_tokens)


def signature_with_notes(
    tool: Mapping[str, JSON], name: str | None = None, path: str = "", examples: Sequence[JSON] = ()
) -> str:
    """Writes the signature, a note for each parameter and the description, with less detail for larger tools.

    Args:
        path: The path of the only parameter to write, such as `body.message`, without description and example.
        examples: Arguments of valid calls; the first is written whatever it costs.
    """
    return _with_examples(_notes(tool, name or str(tool.get("name")), path), () if path else examples[:1])


def _notes(tool: Mapping[str, JSON], name: str, path: str) -> str:
    exhausted = 0
    for detail in _NOTES_DETAILS:
        if _is_too_costly(detail, exhausted):
            continue
        parameters = Parameters(_input_schema(tool), detail, _MAX_STEPS, path)
        text = _signature_text(tool, name, parameters, 0 if path else detail.description_chars)
        if parameters.has_omissions:
            inside = f"{json_text(f'{name}.{parameters.omitted_in}')} or " if parameters.omitted_in and not path else ""
            text += f'\nWhat … leaves out: get_schema({inside}detail="full")'
        exhausted += parameters.is_too_large
        if not parameters.is_too_large and _fits(text, NOTES_TOKENS):
            return text
    return f'{name}(…): get_schema(detail="full")'


def full_text(tool: Mapping[str, JSON], name: str | None = None, path: str = "", examples: Sequence[JSON] = ()) -> str:
    """Writes every parameter, or one, with its type, choices, default, limits and description, and all examples."""
    parameters = Parameters(_input_schema(tool), _FULL_DETAIL, path=path)
    text = _signature_text(tool, name, parameters, 0 if path else UNBOUNDED)
    return _with_examples(text, () if path else examples)


def _with_examples(text: str, examples: Sequence[JSON]) -> str:
    return "\n".join([text, *(f"e.g. {json_text(example)}" for example in examples)])


def signature_and_summary(tool: Mapping[str, JSON], name: str, summary: str, max_tokens: int) -> str:
    """Writes signature and summary within a budget.

    It leaves out optional fields of nested objects first, then the types and names of optional parameters, then
    choices, then required fields of nested objects, then names, then the summary.
    """
    schema = _input_schema(tool)
    shorter = prose.cut(summary, _SHORTER_SUMMARY_CHARS)
    choices = [(detail, summary) for detail in _SIGNATURE_DETAILS]
    choices += [(detail, shorter) for detail in (_SIGNATURE_DETAILS[-1], *_FEWER_NAMES)]
    exhausted = 0
    for detail, shown_summary in choices:
        if _is_too_costly(detail, exhausted):
            continue
        parameters = Parameters(schema, detail, _MAX_STEPS)
        text = _one_line(name, parameters.inline_texts(), shown_summary)
        exhausted += parameters.is_too_large
        if not parameters.is_too_large and _fits(text, max_tokens):
            return text
    text = _one_line(name, ["…"], shorter)
    return text if _fits(text, max_tokens) else _one_line(name, ["…"], "")


def names_result(schema: Mapping[str, JSON], part: JSON) -> bool:
    """Returns whether a part of an output schema names a member of the results."""
    return bool(Parameters(schema, _OPTIONAL_NAMES, _MAX_STEPS).field_names(part))


def declared_result(schema: Mapping[str, JSON], part: JSON, max_tokens: int) -> str:
    """Says what a part of an output schema promises, within a budget; empty if that has no room for a name."""
    exhausted = 0
    for detail in (_PART_DETAIL._replace(limits=False), *_SIGNATURE_DETAILS):
        if _is_too_costly(detail, exhausted):
            continue
        parameters = Parameters(schema, detail, _MAX_STEPS)
        text = f"returns: {parameters.type_text(part)}"
        exhausted += parameters.is_too_large
        if not parameters.is_too_large and _fits(text, max_tokens):
            return text if _MEMBER.search(text) else ""
    return ""


def has_omissions(line: str) -> bool:
    """Returns whether a line that `signature_and_summary` wrote leaves out fields or choices."""
    return _OMISSION.match(line.partition("): ")[0]) is not None


def part_text(schema: Mapping[str, JSON], part: JSON) -> str:
    """Writes what one part of a schema takes: its type, required fields, allowed values and a note."""
    exhausted = 0
    text = "…"
    for detail in (_PART_DETAIL, *_SIGNATURE_DETAILS):
        if _is_too_costly(detail, exhausted):
            continue
        parameters = Parameters(schema, detail, _MAX_STEPS)
        text = parameters.type_text(part)
        exhausted += parameters.is_too_large
        if not parameters.is_too_large and _fits(text, _PART_TOKENS):
            break
    text = text if len(text) <= _PART_TOKENS * _MAX_CHARS_PER_TOKEN else "…"
    note = description_text(part.get("description"), _PART_NOTE_CHARS) if isinstance(part, dict) else ""
    return f"{text} # {note.removesuffix('.')}" if note else text


def _is_too_costly(detail: TextDetail, exhausted: int) -> bool:
    """Returns whether to leave out a detail after so many texts that visited too many nodes: few of the others fit."""
    return exhausted >= (_MAX_EXHAUSTED if detail.depth == 0 else _MAX_EXHAUSTED // 2)


def _fits(text: str, max_tokens: int) -> bool:
    return len(text) <= max_tokens * _MAX_CHARS_PER_TOKEN and tokens.count(text) <= max_tokens


def _one_line(name: str, parameters: list[str], summary: str) -> str:
    return f"{name}({', '.join(parameters)}){f': {summary}' if summary else ''}"


def _input_schema(tool: Mapping[str, JSON]) -> dict[str, Any]:
    schema = tool.get("inputSchema")
    return schema if isinstance(schema, dict) else {}


def _signature_text(tool: Mapping[str, JSON], name: str | None, parameters: Parameters, description_chars: int) -> str:
    shown_name = name or str(tool.get("name"))
    rows = parameters.rows()
    if any(row.note for row in rows):
        head = "\n".join([f"{shown_name}(", *(f"{text} # {note}" if note else text for text, note in rows), ")"])
    else:
        head = f"{shown_name}({', '.join(row.text for row in rows)})"
    description = description_text(tool.get("description"), description_chars)
    # Other lines of ours begin without a space.
    space = " " if _IMITATION.match(description) else ""
    return f"{head}\n{space}{description}" if description else head
