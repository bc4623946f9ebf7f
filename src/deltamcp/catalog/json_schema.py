"""JSON Schemas nobody here wrote: what they admit, and whether they can be compiled at all."""

import functools
import itertools
from typing import TYPE_CHECKING, Any, TypeAlias

from deltamcp.catalog.signature import one_line_schema
from deltamcp.values import JSON

if TYPE_CHECKING:
    import jsonschema_rs

_MAX_PROBLEMS = 5
"""Problems told of one value: a model mends the first few, and the next call tells the rest."""

_OLDER_DRAFTS = ("http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema#")

SchemaFault: TypeAlias = tuple[list[str | int], str]
"""Where in the schema, and a sentence."""


class ForeignSchema:
    """A schema and what it says of values. One that cannot be compiled admits everything: who made it will check."""

    def __init__(self, schema: dict[str, JSON]) -> None:
        self._schema = schema

    @functools.cached_property
    def _validator(self) -> "jsonschema_rs.Validator | None":
        import jsonschema_rs  # 30 ms to import, needed only where a schema is not a function's own

        schema, fault = normalize_draft(self._schema)
        return None if fault is not None else jsonschema_rs.validator_for(schema, retriever=_refuse)

    def is_valid(self, value: JSON) -> bool:
        return self._validator is None or self._validator.is_valid(value)

    def problems(self, value: JSON) -> list[str]:
        """A sentence for each of the first, with the part of the schema that it is about."""
        if self._validator is None:
            return []
        first = itertools.islice(self._validator.iter_errors(value), _MAX_PROBLEMS)
        return list(dict.fromkeys(map(self._problem_sentence, first)))

    def _problem_sentence(self, problem: "jsonschema_rs.ValidationError") -> str:
        where = ".".join(str(part) for part in problem.instance_path) or "arguments"
        return f"{where}: {problem.message.rstrip('.')}; expected {one_line_schema(self._schema_part(problem))}."

    def _schema_part(self, problem: "jsonschema_rs.ValidationError") -> JSON:
        """The part of the schema that a problem is about: for what is missing, the schema of that."""
        said = problem.kind.as_dict()
        try:
            node: Any = self._schema
            *path, keyword = problem.schema_path
            for part in path:
                node = node[part]
            match keyword:
                case "required":
                    return node["properties"][said["property"]]
                case "additionalProperties":
                    return list(node["properties"])
                case _:
                    return node
        except (KeyError, IndexError, TypeError, ValueError):  # through a reference the path leads elsewhere
            return said


def normalize_draft(schema: dict[str, JSON]) -> tuple[dict[str, JSON], SchemaFault | None]:
    """The schema under a `$schema` it compiles by, or why there is none.

    Many schemas name no draft and are of an older one, or name one nobody knows; that is mended here, so that no
    later reader need guess. Nothing is fetched.
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
    import jsonschema_rs  # 30 ms to import, needed only where a schema is not a function's own

    wanted: list[str] = []
    try:
        jsonschema_rs.validator_for(schema, retriever=functools.partial(_refuse, wanted=wanted))
    except jsonschema_rs.ValidationError as error:
        if wanted:
            return [], f"The reference {wanted[0]} leads out of the schema, and nothing is fetched; put it under $defs."
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


def _refuse(uri: str, wanted: list[str] | None = None) -> JSON:
    """MCP 2026-07-28 "$ref Resolution": network references MUST NOT be dereferenced."""
    if wanted is not None:
        wanted.append(uri)
    raise ValueError(f"the reference {uri} is not part of the schema, and nothing is fetched")
