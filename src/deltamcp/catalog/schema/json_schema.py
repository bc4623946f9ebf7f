"""JSON Schemas that authors or other servers wrote: checks whether they compile, and validates values against them."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from deltamcp.catalog.schema.arguments import ArgumentProblem, problem_at
from deltamcp.catalog.schema.schema_work import SchemaWork, UnboundedSchemaError
from deltamcp.catalog.text import tool_text
from deltamcp.catalog.text.clean_text import MAX_PROBLEMS, MESSAGE_CHARS, cut, path_text, value_excerpt
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON
from deltamcp.work import Work, WorkLimitError

if TYPE_CHECKING:
    import jsonschema_rs


_SCHEMA_STEPS = 10_000
"""The steps of reading a peer's schema, about one for each value in it; to compile so many takes some 15 ms."""
_OWN_SCHEMA_STEPS = 10_000_000
_COUNT_STEPS = 20_000
"""The steps of adding up the visits of a validator to a value, some 20 ms."""
_MAX_VISITS = 1_000_000
"""The visits of a validator, some 50 ms; see `schema_work.py`."""
_MAX_DESCRIBED_VISITS = 1_000
"""The visits up to which all problems are looked for: the validator collects them all, some 10 µs each."""
_MAX_DESCRIBED_VALUES = 1_000
_MAX_DESCRIBED_CHARS = 10_000
"""The size of a value up to which all its problems are looked for, as each may repeat it."""
_BACKTRACKS = 20_000
"""The steps of a pattern with look-around or back-references for one text; other patterns take linear time."""

_OLDER_DRAFTS = ("http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema#")

_PROPERTIES_KEYWORDS = ("$schema", "$id", "id", "$defs", "definitions", "type", "properties")
_NO_FIT = ArgumentProblem("The arguments do not fit the schema; they are too large to say where.")
_MAY_BE_MORE = ArgumentProblem("There may be more problems.")

SchemaFault: TypeAlias = tuple[list[str | int], str]
"""A path in the schema, and a sentence about the fault there."""


def describes_object(schema: Mapping[str, JSON]) -> bool:
    """Whether every value that fits a schema is an object, as far as its `type` tells."""
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/") and isinstance(schema.get("$defs"), dict):
        schema = schema["$defs"].get(reference.removeprefix("#/$defs/"), {})
    return schema.get("type") == "object" or "properties" in schema


def wrapper_schema(schema: Mapping[str, JSON]) -> dict[str, JSON]:
    """Returns the schema of an object whose member `result` fits a schema; definitions keep their place.

    Raises:
        ConfigurationError: the schema refers to a place that is another one in the object.
    """
    definitions = {key: schema[key] for key in ("$schema", "$defs", "definitions") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in definitions}
    pending: list[JSON] = [inner, *definitions.values()]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            reference = node.get("$ref", "")
            is_local = isinstance(reference, str) and reference.startswith("#")
            if is_local and not reference.startswith(("#/$defs/", "#/definitions/")):
                raise ConfigurationError(f"output_schema refers to {reference!r}; refer to a part of its $defs.")
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return {"type": "object", "properties": {"result": inner}, "required": ["result"], **definitions}


class ForeignSchema:
    """Validates values against a schema.

    A schema that cannot be compiled accepts every value, and leaves validation to the handler behind it. So does a
    schema of another server whose validation may take too long.
    """

    def __init__(self, schema: dict[str, JSON], is_own: bool = False) -> None:
        """`is_own` says that the server's author or operator wrote the schema, not a peer."""
        self._schema = schema
        self._is_own = is_own

    @functools.cached_property
    def _work(self) -> SchemaWork | None:
        """Counts the work of a validation; None where it cannot be counted."""
        try:
            return SchemaWork(self._schema, Work(_OWN_SCHEMA_STEPS if self._is_own else _SCHEMA_STEPS))
        except (UnboundedSchemaError, WorkLimitError):
            return None

    @functools.cached_property
    def _validator(self) -> "jsonschema_rs.Validator | None":
        if self._work is None and not self._is_own:
            return None
        schema, fault = normalize_draft(self._schema)
        return None if fault is not None else _compile(schema)

    @functools.cached_property
    def _properties_validator(self) -> "jsonschema_rs.Validator":
        """Validates some of the properties of an object, whatever else the object needs."""
        schema, _ = normalize_draft(self._schema)
        return _compile({key: schema[key] for key in _PROPERTIES_KEYWORDS if key in schema})

    def is_valid(self, value: JSON) -> bool:
        """
        Raises:
            WorkLimitError: the value is so large that its validation may take too long.
        """
        if self._validator is None:
            return True
        if self._visits(value) > _MAX_VISITS:
            raise WorkLimitError("The arguments are too large to check them against the schema; send less at once.")
        return self._validator.is_valid(value)

    def output_problem(self, value: JSON) -> str | None:
        """Describes a problem of a value that the author's own function returned, however large; None if it fits."""
        if self._validator is None or self._validator.is_valid(value):
            return None
        errors = self._errors(value)
        return self._problem(errors[0]).text if errors else "The value does not fit the output schema."

    def _visits(self, value: JSON) -> float:
        if self._work is None:
            return 0
        size = _size(value, _MAX_VISITS, _MAX_VISITS)
        try:
            visits = self._work.visits(value, size.values, Work(_COUNT_STEPS))
            return visits if visits <= _MAX_VISITS else self._work.exact_visits(value, Work(_COUNT_STEPS))
        except RecursionError:
            return math.inf

    def _errors(self, value: JSON) -> "list[jsonschema_rs.ValidationError] | None":
        """Returns all problems of a value that is not valid; None where there may be too many."""
        assert self._validator is not None, "without a validator every value is valid"
        size = _size(value, _MAX_DESCRIBED_VALUES, _MAX_DESCRIBED_CHARS)
        if size.values > _MAX_DESCRIBED_VALUES or size.chars > _MAX_DESCRIBED_CHARS:
            return None
        if self._work is not None and self._work.exact_visits(value, Work(_COUNT_STEPS)) > _MAX_DESCRIBED_VISITS:
            return None
        return list(self._validator.iter_errors(value))

    def drop_nulls(self, arguments: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """Returns arguments without those that are null, optional, and declared by a schema that does not admit null.

        Clients send null for arguments that they leave out, where a strict schema makes them send every argument.
        """
        nulls = {name for name in self.optional_names if name in arguments and arguments[name] is None}
        if self._validator is None or not nulls:
            return arguments
        errors = self._errors(arguments)
        if errors is None:
            refused = {name for name in nulls if not self._properties_validator.is_valid({name: None})}
        else:
            refused = {str(path[0]) for error in errors if (path := error.instance_path)}
        return {name: value for name, value in arguments.items() if name not in nulls & refused}

    @functools.cached_property
    def optional_names(self) -> frozenset[str]:
        """The names of the properties that an object need not have."""
        properties, required = self._schema.get("properties"), self._schema.get("required")
        names = properties if isinstance(properties, dict) else {}
        return frozenset(names).difference(required if isinstance(required, list) else ())

    def problems(
        self, value: JSON, skip: Callable[[list[str | int], str], bool] | None = None
    ) -> list[ArgumentProblem]:
        """Describes the first problems of a value, each in a sentence with the part of the schema it violates.

        `skip` returns whether to leave out a problem, by its path in the value and its keyword.

        Raises:
            WorkLimitError: the value is so large that its validation may take too long.
        """
        if self._validator is None:
            return []
        errors = self._errors(value)
        if errors is None:
            return self._problems_of_large(value, skip)
        if skip is not None:
            errors = [each for each in errors if not skip(list(each.instance_path), str(each.schema_path[-1]))]
        problems = list(itertools.chain.from_iterable(map(_innermost_problems, errors)))
        first = list(dict.fromkeys(map(self._problem, problems[:MAX_PROBLEMS])))
        left_out = len(problems) - MAX_PROBLEMS
        return [*first, ArgumentProblem(f"There are {left_out} more problems.")] if left_out > 0 else first

    def _problems_of_large(
        self, value: JSON, skip: Callable[[list[str | int], str], bool] | None
    ) -> list[ArgumentProblem]:
        """Names the arguments that do not fit, of a value for which all problems would be too many."""
        required, properties = self._schema.get("required"), self._schema.get("properties")
        problems: list[ArgumentProblem] = []
        if isinstance(value, Mapping):
            missing = [name for name in required if name not in value] if isinstance(required, list) else []
            if not (skip and skip([], "required")):
                problems += [
                    problem_at([name], "required", f"{path_text([name])}: required, but missing.")
                    for name in missing[:MAX_PROBLEMS]
                ]
            for name, part in properties.items() if isinstance(properties, dict) else ():
                if name not in value or self._properties_validator.is_valid({name: value[name]}):
                    continue
                if not (skip and skip([name], "type")):
                    expected = tool_text.part_text(self._schema, part)
                    text = f"{path_text([name])}: {value_excerpt(value[name])} does not fit; expected {expected}."
                    problems.append(problem_at([name], "type", text))
        if problems:
            return [*problems[:MAX_PROBLEMS], _MAY_BE_MORE]
        # Other problems may be solved by what the caller does not know.
        return [] if skip is not None or self.is_valid(value) else [_NO_FIT]

    def _problem(self, problem: "jsonschema_rs.ValidationError") -> ArgumentProblem:
        """Names the place of a problem, and says which required fields and values the schema has for that place."""
        *path, keyword = problem.schema_path or [""]
        try:
            node: Any = self._schema
            for part in path:
                node = node[part]
        except (KeyError, IndexError, TypeError):  # the path of a problem behind an anchor does not exist here
            text = f"{path_text(problem.instance_path)}: {_message(problem)}."
            return problem_at(problem.instance_path, str(keyword), text)
        details = problem.kind.as_dict()
        if keyword == "required":
            where = (*problem.instance_path, details["property"])
            properties = node.get("properties")
            missing = properties.get(details["property"]) if isinstance(properties, dict) else None
            expected = f"; expected {tool_text.part_text(self._schema, missing)}" if missing else ""
            return problem_at(where, keyword, f"{path_text(where)}: required, but missing{expected}.")
        expected = tool_text.part_text(self._schema, node)
        if keyword == "additionalProperties" and details.get("unexpected"):
            where = (*problem.instance_path, details["unexpected"][0])
            return problem_at(where, keyword, f"{path_text(where)}: no such field; expected {expected}.")
        if keyword in ("anyOf", "oneOf"):
            is_ambiguous = sum(not branch for branch in details["context"]) > 1
            verb = "fits more than one alternative" if is_ambiguous else "does not fit"
            text = f"{value_excerpt(problem.instance)} {verb}"
        else:
            text = _message(problem)
        where = tuple(problem.instance_path)
        return problem_at(where, str(keyword), f"{path_text(where)}: {text}; expected {expected}.")


def _message(problem: "jsonschema_rs.ValidationError") -> str:
    return cut(problem.message.rstrip("."), MESSAGE_CHARS)


class _Size(NamedTuple):
    values: int
    chars: int


def _size(value: JSON, max_values: int, max_chars: int) -> _Size:
    """Counts the values in a value and the characters of its texts, up to where one of both is more than allowed."""
    pending: list[Any] = [value]
    values = chars = 0
    while pending and values <= max_values and chars <= max_chars:
        node = pending.pop()
        values += 1
        if isinstance(node, str):
            chars += len(node)
        elif isinstance(node, Mapping):
            chars += sum(len(name) for name in node if isinstance(name, str))
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return _Size(values, chars)


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


def _compile(schema: dict[str, JSON], refused: list[str] | None = None) -> "jsonschema_rs.Validator":
    """Compiles a schema; `refused` gets the references that point outside of it."""
    import jsonschema_rs  # 30 ms to import, needed only for schemas not made from a function

    return jsonschema_rs.validator_for(
        schema,
        retriever=functools.partial(_refuse_reference, refused=refused),
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
    )


def _find_fault(schema: dict[str, JSON]) -> SchemaFault | None:
    import jsonschema_rs  # 30 ms to import, needed only for schemas not made from a function

    refused: list[str] = []
    try:
        _compile(schema, refused)
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
