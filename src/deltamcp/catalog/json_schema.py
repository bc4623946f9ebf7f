"""JSON Schemas that authors or other servers wrote: checks whether they compile, and validates values against them."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from deltamcp.catalog import tool_text
from deltamcp.values import JSON

if TYPE_CHECKING:
    import jsonschema_rs

_MAX_PROBLEMS = 5
"""Problems reported for one value: a model corrects the first few, and the next call reports the rest."""
_MAX_EXCERPT_CHARS = 80

_OLDER_DRAFTS = ("http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema#")

SchemaFault: TypeAlias = tuple[list[str | int], str]
"""A path in the schema, and a sentence about the fault there."""


class ForeignSchema:
    """Validates values against a schema.

    A schema that cannot be compiled accepts every value, and leaves validation to the handler behind it.
    """

    def __init__(self, schema: dict[str, JSON]) -> None:
        self._schema = schema

    @functools.cached_property
    def _validator(self) -> "jsonschema_rs.Validator | None":
        import jsonschema_rs  # 30 ms to import, needed only for schemas not made from a function

        schema, fault = normalize_draft(self._schema)
        return None if fault is not None else jsonschema_rs.validator_for(schema, retriever=_refuse_reference)

    def is_valid(self, value: JSON) -> bool:
        return self._validator is None or self._validator.is_valid(value)

    def drop_nulls(self, arguments: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """Returns arguments without those that are null, optional, and declared by a schema that does not admit null.

        Clients send null for arguments that they leave out, where a strict schema makes them send every argument.
        """
        if self._validator is None:
            return arguments
        nulls = {name for name in self.optional_names if name in arguments and arguments[name] is None}
        refused = {path[0] for problem in self._validator.iter_errors(arguments) if (path := problem.instance_path)}
        return {name: value for name, value in arguments.items() if name not in nulls & refused}

    @functools.cached_property
    def optional_names(self) -> frozenset[str]:
        """The names of the properties that an object need not have."""
        properties, required = self._schema.get("properties"), self._schema.get("required")
        names = properties if isinstance(properties, dict) else {}
        return frozenset(names).difference(required if isinstance(required, list) else ())

    def problems(self, value: JSON, skip: Callable[[list[str | int], str], bool] | None = None) -> list[str]:
        """Describes the first problems of a value, each in a sentence with the part of the schema it violates.

        `skip` returns whether to leave out a problem, by its path in the value and its keyword.
        """
        if self._validator is None:
            return []
        found: Iterator[jsonschema_rs.ValidationError] = self._validator.iter_errors(value)
        if skip is not None:
            found = (each for each in found if not skip(list(each.instance_path), str(each.schema_path[-1])))
        problems = itertools.chain.from_iterable(map(_innermost_problems, found))
        return list(dict.fromkeys(map(self._problem_sentence, itertools.islice(problems, _MAX_PROBLEMS))))

    def _problem_sentence(self, problem: "jsonschema_rs.ValidationError") -> str:
        """Names the place of a problem, and says which required fields and values the schema has for that place."""
        *path, keyword = problem.schema_path or [""]
        try:
            node: Any = self._schema
            for part in path:
                node = node[part]
        except (KeyError, IndexError, TypeError):  # the path of a problem behind an anchor does not exist here
            return f"{_path_text(problem.instance_path)}: {problem.message.rstrip('.')}."
        details = problem.kind.as_dict()
        if keyword == "required":
            path_text = _path_text((*problem.instance_path, details["property"]))
            properties = node.get("properties")
            missing = properties.get(details["property"]) if isinstance(properties, dict) else None
            expected = f"; expected {tool_text.part_text(self._schema, missing)}" if missing else ""
            return f"{path_text}: required, but missing{expected}."
        expected = tool_text.part_text(self._schema, node)
        if keyword == "additionalProperties" and details.get("unexpected"):
            path_text = _path_text((*problem.instance_path, details["unexpected"][0]))
            return f"{path_text}: no such field; expected {expected}."
        if keyword in ("anyOf", "oneOf"):
            is_ambiguous = sum(not branch for branch in details["context"]) > 1
            verb = "fits more than one alternative" if is_ambiguous else "does not fit"
            return f"{_path_text(problem.instance_path)}: {_excerpt(problem.instance)} {verb}; expected {expected}."
        return f"{_path_text(problem.instance_path)}: {problem.message.rstrip('.')}; expected {expected}."


def _excerpt(value: JSON) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_EXCERPT_CHARS else text[:_MAX_EXCERPT_CHARS] + "…"


def _path_text(path: Iterable[str | int]) -> str:
    return ".".join(map(str, path)) or "arguments"


def _innermost_problems(problem: "jsonschema_rs.ValidationError") -> "Iterator[jsonschema_rs.ValidationError]":
    """Yields the problems of the only branch of a union that the value can be meant for; else the problem itself.

    A value is not meant for a branch of another type, nor for one whose constant or choices it does not have; if that
    leaves several, not for one whose required fields it lacks.
    """
    branches = [branch for branch in problem.kind.as_dict().get("context", []) if branch]
    for keywords in (("type", "const", "enum"), ("type", "const", "enum", "required")):
        meant = [branch for branch in branches if not any(_is_about(problem, inner, keywords) for inner in branch)]
        if len(meant) == 1:
            for inner in meant[0]:
                yield from _innermost_problems(inner)
            return
    yield problem


def _is_about(
    union: "jsonschema_rs.ValidationError", inner: "jsonschema_rs.ValidationError", keywords: tuple[str, ...]
) -> bool:
    """Returns whether a problem of a branch is about the value itself, or the constant or choices of a field of it."""
    keyword, depth = inner.schema_path[-1], len(inner.instance_path) - len(union.instance_path)
    return keyword in keywords and depth <= (1 if keyword in ("const", "enum") else 0)


def normalize_draft(schema: dict[str, JSON]) -> tuple[dict[str, JSON], SchemaFault | None]:
    """Returns the schema with a `$schema` it compiles under, or with a fault where there is none.

    Many schemas name no draft although they need an older one, or name an unknown draft. This function corrects that,
    so that later readers need not guess. It fetches nothing.
    """
    if "$schema" in schema and _find_fault({"$schema": schema["$schema"]}):
        schema = {key: value for key, value in schema.items() if key != "$schema"}
    fault = _find_fault(schema)
    if fault is None or "$schema" in schema:
        return schema, fault
    for draft in _OLDER_DRAFTS:
        older = {"$schema": draft, **schema}
        if _find_fault(older) is None:
            return older, None
    return schema, fault


def _find_fault(schema: dict[str, JSON]) -> SchemaFault | None:
    import jsonschema_rs  # 30 ms to import, needed only for schemas not made from a function

    refused: list[str] = []
    try:
        jsonschema_rs.validator_for(schema, retriever=functools.partial(_refuse_reference, refused=refused))
    except jsonschema_rs.ValidationError as error:
        if refused:
            return (
                [],
                f"The reference {refused[0]} points outside the schema, and nothing is fetched; put it under $defs.",
            )
        path = list(error.instance_path)
        if path[-1:] == ["type"] and isinstance(error.instance, str):
            return (
                path,
                f"JSON Schema has no type {error.instance!r}; use string, integer, number, boolean, array or object.",
            )
        return path, f"This is not JSON Schema: {error.message.rstrip('.')}."
    except ValueError as error:
        return [], f"This is not JSON Schema: {str(error).rstrip('.')}."
    return None


def _refuse_reference(uri: str, refused: list[str] | None = None) -> JSON:
    """MCP 2026-07-28 "$ref Resolution": network references MUST NOT be dereferenced."""
    if refused is not None:
        refused.append(uri)
    raise ValueError(f"the reference {uri} is not part of the schema, and nothing is fetched")
