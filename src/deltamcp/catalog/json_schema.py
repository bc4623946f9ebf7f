"""JSON Schemas that authors or other servers wrote: checks whether they compile, and validates values against them.

The validator is compiled code, which nothing can interrupt: 40 definitions that each refer twice to the next one keep
it busy for ever. So the visits of a value by a part of the schema are added up first. What many paths lead to is
counted once and multiplied, so that counting takes no longer than the schema and the value are large.
"""

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import unquote

from deltamcp.catalog.arguments import ArgumentProblem, problem_at
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
"""The visits of a validator, some 50 ms; `SchemaWork` adds them up."""
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
_MAX_CHAIN = 100
"""Parts of a schema that apply to one value, each inside the one before; real schemas stay under 12."""
_CONTENT_PER_VISIT = 8
"""Constants, choices and required names that take as long as a visit."""
_VISITS_PER_STATE = 0.6
"""Each character may lead a regular expression through all its states, which takes 30 ns each; a visit takes 50."""
_VISITS_PER_PLAIN_CHAR = 0.05
"""The same for a pattern of one repeated class, which is in one state at any time."""
_MAX_STATES = 1_000_000
_SAME_VALUE_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_VALUE = ("not", "if", "then", "else")
_SAME_VALUE_BY_NAME = ("dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_EACH_MEMBER = ("additionalProperties", "unevaluatedProperties")
_EACH_ITEM = ("additionalItems", "contains", "unevaluatedItems")
_CONTENT = ("enum", "const", "required", "dependentRequired", "type")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_ONE_CLASS = re.compile(r"\^?(?:\[[^\]]*\]|\\?.)(?:\{\d*,?\d*\}|[*+])?\$?", re.DOTALL)
_ATOM = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{(\d*),?(\d*)\}|.", re.DOTALL)


class UnboundedSchemaError(Exception):
    """The work of validating against a schema cannot be bounded, or the schema is too large to find out."""


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
    def _work(self) -> "SchemaWork | None":
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


class _Part:
    """A part of a schema, and the parts that apply where it does."""

    __slots__ = (
        "content",
        "each_item",
        "each_member",
        "first_items",
        "is_repeated",
        "member_names",
        "members",
        "on_leaf",
        "per_char",
        "same",
        "size",
    )

    def __init__(self) -> None:
        self.same: list[_Part] = []
        """Parts that apply to the same value."""
        self.members: dict[str, _Part] = {}
        self.each_member: list[_Part] = []
        self.member_names: list[_Part] = []
        self.first_items: list[list[_Part]] = []
        """Lists of parts that apply to the items in order."""
        self.each_item: list[_Part] = []
        self.content = 0
        """The size of constants and choices, in visits."""
        self.per_char = 0.0
        """The work of the patterns for each character, in visits."""
        self.is_repeated = False
        """Whether a validator visits the parts again, to find out what they have evaluated."""
        self.size: float | None = None
        self.on_leaf: tuple[float, float] | None = None

    def all_parts(self) -> Iterator["_Part"]:
        yield from self.same
        yield from self.members.values()
        yield from self.each_member
        yield from self.member_names
        for parts in self.first_items:
            yield from parts
        yield from self.each_item


class SchemaWork:
    """Counts the visits that a validator makes."""

    def __init__(self, schema: Mapping[str, JSON], work: Work) -> None:
        """
        Raises:
            UnboundedSchemaError: the schema applies to a value again and again, or refers to what it does not contain.
            WorkLimitError: the schema is larger than the work allows.
        """
        self._root = schema
        self._work = work
        self._anchors: dict[str, list[Any]] = {}
        self._parts: dict[int, _Part] = {}
        try:
            self._find_anchors()
            self._start = self._part(schema)
            self._size = self._expanded_size(self._start, set())
            for part in self._parts.values():
                self._leaf_work(part, 0)
        except RecursionError:
            raise UnboundedSchemaError from None

    def visits(self, value: JSON, count: int, work: Work) -> float:
        """Returns how many visits the validation of a value takes at most; `count` is how many values there are in it.

        Raises:
            WorkLimitError: it takes too much work to find out.
        """
        return self._visits(self._start, value, {}, work) if self._size == math.inf else self._size * count

    def exact_visits(self, value: JSON, work: Work) -> float:
        """Returns the same number, without those visits that parts of the schema would only make to other values."""
        return self._visits(self._start, value, {}, work)

    # The schema

    def _find_anchors(self) -> None:
        """Finds the names that references use. A part with an address of its own would change what references mean."""
        pending: list[Any] = [self._root]
        while pending:
            node = pending.pop()
            self._work.spend()
            if isinstance(node, dict):
                for key in _ANCHORS:
                    if isinstance(node.get(key), str):
                        self._anchors.setdefault(node[key], []).append(node)
                if node is not self._root and (isinstance(node.get("$id"), str) or isinstance(node.get("id"), str)):
                    raise UnboundedSchemaError
                pending.extend(node.values())
            elif isinstance(node, list):
                pending.extend(node)
            elif isinstance(node, str):
                self._work.scan(len(node))

    def _part(self, schema: Any) -> _Part:
        known = self._parts.get(id(schema))
        if known is not None:
            return known
        part = self._parts[id(schema)] = _Part()
        if not isinstance(schema, dict):
            return part
        self._work.spend()
        for keyword in _REFERENCES:
            if keyword in schema:
                part.same += map(self._part, self._targets(keyword, schema[keyword]))
        for keyword in _SAME_VALUE_LISTS:
            part.same += self._part_list(schema.get(keyword))
        for keyword in _SAME_VALUE:
            if keyword in schema:
                part.same.append(self._part(schema[keyword]))
        for keyword in _SAME_VALUE_BY_NAME:
            part.same += self._part_dict(schema.get(keyword)).values()
        part.members = self._part_dict(schema.get("properties"))
        patterns = self._part_dict(schema.get("patternProperties"))
        part.each_member = [*patterns.values(), *(self._part(schema[key]) for key in _EACH_MEMBER if key in schema)]
        if "propertyNames" in schema:
            part.member_names = [self._part(schema["propertyNames"])]
        for keyword in ("prefixItems", "items"):
            if isinstance(schema.get(keyword), list):
                part.first_items.append(self._part_list(schema[keyword]))
            elif keyword in schema:
                part.each_item.append(self._part(schema[keyword]))
        part.each_item += [self._part(schema[key]) for key in _EACH_ITEM if key in schema]
        part.content = sum(_content_size(schema[key]) for key in _CONTENT if key in schema) // _CONTENT_PER_VISIT
        part.per_char = _pattern_work(schema.get("pattern"))
        for pattern in patterns:
            names = _Part()
            names.per_char = _pattern_work(pattern)
            part.member_names.append(names)
            self._parts[id(names)] = names
        part.is_repeated = "unevaluatedProperties" in schema or "unevaluatedItems" in schema
        return part

    def _part_list(self, schemas: Any) -> list[_Part]:
        return [self._part(one) for one in schemas] if isinstance(schemas, list) else []

    def _part_dict(self, schemas: Any) -> dict[str, _Part]:
        return {name: self._part(one) for name, one in schemas.items()} if isinstance(schemas, dict) else {}

    def _targets(self, keyword: str, reference: Any) -> list[Any]:
        """Returns the parts that a reference may mean.

        Raises:
            UnboundedSchemaError: it means something outside of the schema.
        """
        address = self._root.get("$id") or self._root.get("id")
        if not isinstance(reference, str):
            return []
        if isinstance(address, str) and reference.startswith(address.partition("#")[0]):
            reference = reference.removeprefix(address.partition("#")[0]) or "#"
        if not reference.startswith("#"):
            raise UnboundedSchemaError
        fragment = unquote(reference[1:])
        self._work.scan(len(fragment))
        if not fragment or fragment.startswith("/"):
            targets = [self._at(fragment.split("/")[1:])]
        else:
            targets = self._anchors.get(fragment, [])
            if not targets:
                raise UnboundedSchemaError
        # What a dynamic reference means depends on the way to it.
        return [self._root, *targets] if keyword == "$recursiveRef" else targets

    def _at(self, path: list[str]) -> Any:
        found: Any = self._root
        for name in path:
            self._work.spend()
            name = name.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdigit() and int(name[:9]) < len(found):
                found = found[int(name[:9])]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                raise UnboundedSchemaError
        return found

    def _expanded_size(self, part: _Part, around: set[int]) -> float:
        """Returns the number of parts with every reference replaced by what it refers to."""
        if id(part) in around:
            return math.inf
        if part.size is None:
            around.add(id(part))
            inside = sum(self._expanded_size(one, around) for one in part.all_parts())
            around.discard(id(part))
            # The work of a pattern depends on the text, so it is added up with the values.
            part.size = math.inf if part.per_char else (1 + part.content + inside) * (2 if part.is_repeated else 1)
        return part.size

    def _leaf_work(self, part: _Part, chain: int) -> tuple[float, float]:
        """Returns the visits of a value that has no values in it: their number, and more for each character.

        Raises:
            UnboundedSchemaError: the part applies to the same value again, or after too many others.
        """
        if chain > _MAX_CHAIN:
            raise UnboundedSchemaError
        if part.on_leaf is None:
            visits, per_char = 1.0 + part.content, part.per_char
            for one in part.same:
                more = self._leaf_work(one, chain + 1)
                visits, per_char = visits + more[0], per_char + more[1]
            factor = 2 if part.is_repeated else 1
            part.on_leaf = visits * factor, per_char * factor
        return part.on_leaf

    # Values

    def _visits(self, part: _Part, value: Any, known: dict[tuple[int, int], float], work: Work) -> float:
        if not isinstance(value, dict | list) or not value:
            assert part.on_leaf is not None, "the work on a leaf is known of every part"
            visits, per_char = part.on_leaf
            return visits + per_char * len(value) if isinstance(value, str) else visits
        key = id(part), id(value)
        if key in known:
            return known[key]
        work.spend(1 + len(value) // 8)
        total = 1.0 + part.content
        for one in part.same:
            total += self._visits(one, value, known, work)
        if isinstance(value, dict):
            for name, child in value.items():
                if name in part.members:
                    total += self._visits(part.members[name], child, known, work)
                for one in part.each_member:
                    total += self._visits(one, child, known, work)
                for one in part.member_names:
                    total += self._visits(one, name, known, work)
        else:
            for parts in part.first_items:
                for one, child in zip(parts, value, strict=False):
                    total += self._visits(one, child, known, work)
            for one in part.each_item:
                for child in value:
                    total += self._visits(one, child, known, work)
        known[key] = total * (2 if part.is_repeated else 1)
        return known[key]


def _content_size(content: JSON) -> int:
    """Returns the number of values in a constant or a list of choices, with long texts counted by their length."""
    pending, size = [content], 0
    while pending:
        node = pending.pop()
        size += 1
        if isinstance(node, str):
            size += len(node) // 64
        elif isinstance(node, dict | list):
            pending.extend(node.values() if isinstance(node, dict) else node)
    return size


def _pattern_work(pattern: Any) -> float:
    """Returns the work of a pattern for each character of a text, in visits."""
    if not isinstance(pattern, str):
        return 0.0
    return _VISITS_PER_PLAIN_CHAR if _ONE_CLASS.fullmatch(pattern) else _VISITS_PER_STATE * _states(pattern)


def _states(pattern: str) -> int:
    """Returns about how many states a regular expression has, with counted repetitions unrolled."""
    groups, last = [0], 0
    for found in _ATOM.finditer(pattern):
        atom = found.group()
        if atom == "(":
            groups.append(0)
        elif atom == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif atom[0] == "{" and len(atom) > 2:
            times = int((found.group(2) or found.group(1) or "1")[:7])
            last, groups[-1] = min(last * times, _MAX_STATES), min(groups[-1] + last * times, _MAX_STATES)
        elif atom not in "*+?|^$":
            last = 1
            groups[-1] += 1
    return max(1, sum(groups))
