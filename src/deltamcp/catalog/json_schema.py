"""JSON Schemas that authors or other servers wrote: checks whether they compile, and validates values against them."""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from deltamcp.catalog.signature import one_line_schema
from deltamcp.values import JSON

if TYPE_CHECKING:
    import jsonschema_rs

_MAX_PROBLEMS = 5
"""Problems reported for one value: a model corrects the first few, and the next call reports the rest."""

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

    def problems(self, value: JSON, elsewhere: Callable[[list[str | int], str], bool] | None = None) -> list[str]:
        """Describes the first problems of a value, each in a sentence with the part of the schema it violates.

        `elsewhere` returns whether a problem, by its path in the value and its keyword, is left to another judge.
        """
        if self._validator is None:
            return []
        found: Iterator[jsonschema_rs.ValidationError] = self._validator.iter_errors(value)
        if elsewhere is not None:
            found = (each for each in found if not elsewhere(list(each.instance_path), str(each.schema_path[-1])))
        first = itertools.islice(found, _MAX_PROBLEMS)
        return list(dict.fromkeys(map(self._problem_sentence, first)))

    def _problem_sentence(self, problem: "jsonschema_rs.ValidationError") -> str:
        where = ".".join(str(part) for part in problem.instance_path) or "arguments"
        return f"{where}: {problem.message.rstrip('.')}; expected {one_line_schema(self._schema_part(problem))}."

    def _schema_part(self, problem: "jsonschema_rs.ValidationError") -> JSON:
        """Finds the part of the schema that a problem is about; for a missing property, the schema of that property."""
        details = problem.kind.as_dict()
        try:
            node: Any = self._schema
            *path, keyword = problem.schema_path
            for part in path:
                node = node[part]
            match keyword:
                case "required":
                    return node["properties"][details["property"]]
                case "additionalProperties":
                    return list(node["properties"])
                case _:
                    return node
        except (
            KeyError,
            IndexError,
            TypeError,
            ValueError,
        ):  # the path of a problem behind a reference does not exist here
            return details


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
