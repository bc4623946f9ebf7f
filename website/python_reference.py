"""The page of the reference about what `import deltamcp` offers: signatures and docstrings of the code."""

import ast
import enum
import functools
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, is_typeddict

import deltamcp
from deltamcp.client.options import ClientOptions
from deltamcp.transports.options import GrpcOptions, HttpOptions, HttpServerOptions, McpLiteOptions

GROUPS = {
    "Servers": ("DeltaServer", "Context", "Depends", "Disclosure", "ResultPolicy", "Limits", "RateLimits", "Rate"),
    "Results and contents": (
        "ToolResult", "Text", "Image", "Audio", "ResourceLink", "EmbeddedResource", "Annotations", "Icon", "Contents",
        "TextResource", "BlobResource", "PromptMessage", "PromptResult", "Completion", "Kind", "ErrorInfo",
    ),
    "Questions": ("Elicited", "elicitation", "sampling", "roots"),
    "Callers and authentication": (
        "Caller", "Principal", "ResourceServer", "Introspection", "StaticTokens", "HostAuth", "PresenceOnly",
        "OpenAccess",
    ),
    "Extensions": ("CallObserver", "ObservedCall", "CallSpans", "FunctionCall", "CallNext", "Store", "StoreError"),
    "Clients": (
        "connect", "DeltaClient", "Reply", "PendingCall", "OAuth", "apply_delta", "decode_result", "count_tokens",
    ),
    "Errors": (
        *(name for name in deltamcp.__all__ if name.endswith("Error") and name != "StoreError"), "NeedsResource",
        "ToolFailure",
    ),
}  # fmt: skip
"""What belongs together; what is in none of them comes last, under "More"."""
OPTIONS = (ClientOptions, HttpOptions, HttpServerOptions, McpLiteOptions, GrpcOptions)
"""Options that functions take as keywords."""

_QUALIFIED = re.compile(r"\b(?:[a-z_]\w*\.)+([A-Za-z_]\w*)")
_SECTION = re.compile(r"^(Args|Raises|Returns|Yields):$", re.MULTILINE)


def python_page() -> str:
    names = set(deltamcp.__all__)
    placed = {name for group in GROUPS.values() for name in group}
    groups = {**GROUPS, "More": tuple(sorted(names - placed))}
    parts = [
        "# Python API",
        "What `from deltamcp import ...` offers, from the signatures and docstrings of the code.",
    ]
    for group, members in groups.items():
        present = [name for name in members if name in names]
        if present:
            parts.append(f"## {group}")
            parts += [part for name in present for part in _entry(name, getattr(deltamcp, name))]
    parts.append("## Keyword options")
    for options in OPTIONS:
        parts += [f"### `{options.__name__}`", document(options), fields_table(options)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield f"### `{name}`"
    if inspect.isclass(thing):
        yield from _class(name, thing)
    else:
        yield code(signature(name, thing))
        yield document(thing)


def _class(name: str, thing: type) -> Iterator[str]:
    if issubclass(thing, enum.Enum):
        yield document(thing)
        texts = field_documents(thing)
        yield "\n".join(
            f"- `{name}.{member.name}` = `{member.value!r}` {texts.get(member.name, '')}".rstrip() for member in thing
        )
        return
    if not getattr(thing, "_is_protocol", False) and (made := signature(name, thing)):
        yield code(made)
    yield document(thing)
    if "__init__" in vars(thing) and (text := document(vars(thing)["__init__"])):
        yield text
    yield fields_table(thing)
    for member, value in sorted(public_members(thing)):
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if isinstance(value, property):
            yield f"#### `{name}.{member}`"
        else:
            yield f"#### `{name}.{member}()`"
            yield code(signature(member, function, asynchronous=inspect.iscoroutinefunction(function)))
        yield document(function)


def public_members(thing: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties of a class that its users call, its own and those of our classes above it."""
    seen = set()
    for owner in thing.__mro__:
        if not owner.__module__.startswith("deltamcp"):
            continue
        for member, value in vars(owner).items():
            if member.startswith("_") or member in seen:
                continue
            if inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod):
                seen.add(member)
                yield member, value


def signature(name: str, thing: Any, *, asynchronous: bool = False) -> str:
    """A signature in lines of at most 100 characters; an empty text where Python has none."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parameters = [one for one in found.parameters.values() if one.name not in ("self", "cls")]
    rendered: list[str] = []
    keywords = False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not keywords and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
            rendered.append("*")
        keywords = keywords or one.kind is one.KEYWORD_ONLY
        rendered.append(_parameter(one))
    returned = found.return_annotation
    arrow = "" if returned is found.empty or inspect.isclass(thing) else f" -> {_type(returned)}"
    prefix = "async " if asynchronous else ""
    line = f"{prefix}{name}({', '.join(rendered)}){arrow}"
    if len(line) <= 100:
        return line
    return "\n".join((f"{prefix}{name}(", *(f"    {one}," for one in rendered), f"){arrow}"))


def _parameter(one: inspect.Parameter) -> str:
    stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    text = f"{stars}{one.name}"
    if one.annotation is not one.empty:
        text += f": {_type(one.annotation)}"
    if one.default is not one.empty:
        text += f" = {one.default!r}"
    return text


def _type(annotation: Any) -> str:
    """A type without the modules that its names come from."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"ForwardRef\('([^']*)'[^)]*\)|\*<class '([^']*)'>", lambda found: found[1] or found[2], text)
    return _QUALIFIED.sub(r"\1", text).replace("NoneType", "None")


def code(text: str) -> str:
    return f"```python\n{text}\n```" if text else ""


def document(thing: Any) -> str:
    """A docstring as Markdown; `Args` and `Raises` become lists."""
    own = vars(thing).get("__doc__") if inspect.isclass(thing) else getattr(thing, "__doc__", None)
    if not own and (old := getattr(thing, "__deprecated__", None)):
        return f"Deprecated: {old}"
    if not own:
        return ""
    text = inspect.cleandoc(own)
    if inspect.isclass(thing) and text.startswith(f"{thing.__name__}("):
        return ""
    parts = _SECTION.split(text)
    made = [parts[0].strip()]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        made.append(f"**{title}**\n\n{_items(textwrap.dedent(body.strip(chr(10))))}")
    return "\n\n".join(part for part in made if part)


def _items(body: str) -> str:
    items: list[str] = []
    for line in body.splitlines():
        if re.match(r"\S[^:]*: ", line) or not items:
            word, colon, rest = line.partition(": ")
            items.append(f"- `{word}`: {rest}" if colon else f"- {line}")
        else:
            items[-1] += f" {line.strip()}"
    return "\n".join(items)


def first_paragraph(thing: type) -> str:
    return document(thing).split("\n\n")[0].replace("\n", " ")


@functools.cache
def field_documents(thing: type) -> dict[str, str]:
    """The texts below the fields of a class, or the members of an enumeration, by their names."""
    found: dict[str, str] = {}
    for owner in reversed(thing.__mro__):
        if not owner.__module__.startswith("deltamcp"):
            continue
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(tree, ast.ClassDef)
        for statement, after in zip(tree.body, [*tree.body[1:], None], strict=True):
            target: ast.expr | None = statement.target if isinstance(statement, ast.AnnAssign) else None
            if isinstance(statement, ast.Assign) and issubclass(thing, enum.Enum):
                [target] = statement.targets
            if not isinstance(target, ast.Name) or target.id.startswith("_"):
                continue
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            text = after.value.value if is_text else ""  # type: ignore[union-attr]
            found[target.id] = " ".join(str(text).split())
    return found


def field_annotations(thing: type) -> dict[str, str]:
    """The types of the fields of a class as its source has them."""
    found: dict[str, str] = {}
    for owner in reversed(thing.__mro__):
        if owner.__module__.startswith("deltamcp"):
            for name, annotation in inspect.get_annotations(owner).items():
                if not name.startswith("_"):
                    found[name] = _type(annotation)
    return found


def fields_table(thing: type) -> str:
    """The fields of a class, or of a dict of options without those of its bases, with their types and texts."""
    texts, types = field_documents(thing), field_annotations(thing)
    is_struct = hasattr(thing, "__struct_fields__") or is_typeddict(thing)
    names = getattr(thing, "__struct_fields__", texts) if is_struct else [name for name in types if texts.get(name)]
    if not names:
        return ""
    rows = [f"| `{name}` | `{cell(types.get(name, ''))}` | {cell(texts.get(name, ''))} |" for name in names]
    return "\n".join(("| name | type | |", "|---|---|---|", *rows))


def cell(text: str) -> str:
    """A text within a table of Markdown."""
    return text.replace("|", "\\|").replace("\n", " ")
