"""What a listed resource says beyond what it is called. Pure: does no I/O.

Lists of resources grow with data: files, tables, notes. A name that is a part of a resource's own URI is data, as the
URI is. All else that a model may read in the list is text that somebody has to approve.
"""

import json
import re
from urllib.parse import unquote

from deltamcp.catalog.clean_text import visible_line
from deltamcp.values import JSON

_MAX_URI_CHARS, _MAX_SEGMENT_CHARS, _MAX_SEGMENT_WORDS = 512, 128, 12
"""Of a URI that is data, decoded: what is longer could be a text for the model."""
_WORD = re.compile(r"\w+")
_WORD_ENDS = re.compile(r"[\s_+.,-]+")
_MIME_TYPE = re.compile(r"[A-Za-z0-9.+_-]{1,30}/[A-Za-z0-9.+_-]{1,80}(?:; ?[A-Za-z0-9_-]{1,20}=[A-Za-z0-9._-]{1,30})?")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9:.]{4,18}(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?")
_ROLES = ("user", "assistant")
_OWN = "…"


def resource_text(resource: JSON) -> str:
    """Returns what a resource says, without what it is called: two that say the same of themselves are equal.

    It is empty if the resource says nothing that is not data.
    """
    names = _own_names(resource.get("uri")) if isinstance(resource, dict) else None
    if names is None:
        return json.dumps(resource, sort_keys=True)
    said = {key: _without_names(value, names) for key, value in resource.items() if not _is_data(key, value)}
    is_text = any(_WORD.search(value) if isinstance(value, str) else True for value in said.values())
    return json.dumps(said, sort_keys=True) if is_text else ""


def _own_names(uri: JSON) -> list[str] | None:
    """Returns what a resource may be called after its URI, the longest first; None if the URI may be a text."""
    decoded = unquote(uri) if isinstance(uri, str) and len(uri) <= 3 * _MAX_URI_CHARS else ""
    if not decoded or len(decoded) > _MAX_URI_CHARS or visible_line(decoded) != decoded:
        return None
    path = decoded.partition(":")[2].strip("/")
    segments = re.split(r"[/?#&=]", path)
    if any(len(one) > _MAX_SEGMENT_CHARS or len(_WORD_ENDS.split(one)) > _MAX_SEGMENT_WORDS for one in segments):
        return None
    *_, parent, last = ("", *segments)
    names = {decoded, str(uri), path, f"/{path}", last, last.rpartition(".")[0], parent, unquote(last)}
    return sorted(filter(None, names), key=len, reverse=True)


def _is_data(key: str, value: JSON) -> bool:
    match key:
        case "uri":
            return True
        case "size":
            return isinstance(value, int)
        case "mimeType":
            return isinstance(value, str) and _MIME_TYPE.fullmatch(value) is not None
        case "annotations":
            return isinstance(value, dict) and all(map(_is_plain_annotation, value, value.values()))
        case _:
            return False


def _is_plain_annotation(key: str, value: JSON) -> bool:
    match key:
        case "audience":
            return isinstance(value, list) and all(role in _ROLES for role in value)
        case "priority":
            return isinstance(value, int | float)
        case "lastModified":
            return isinstance(value, str) and _TIME.fullmatch(value) is not None
        case _:
            return False


def _without_names(value: JSON, names: list[str]) -> JSON:
    if not isinstance(value, str):
        return value
    for name in names:
        value = _without_name(value, name)
    return value


def _without_name(text: str, name: str) -> str:
    """Writes one character for each place where a name stands by itself."""
    kept, start = [], 0
    while (place := text.find(name, start)) >= 0:
        end = place + len(name)
        is_part = _is_word(text[place - 1 : place] + name[:1]) or _is_word(name[-1:] + text[end : end + 1])
        kept += [text[start:place], name if is_part else _OWN]
        start = end
    return "".join([*kept, text[start:]])


def _is_word(chars: str) -> bool:
    return len(chars) == 2 and _WORD.fullmatch(chars) is not None
