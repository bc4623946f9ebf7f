"""Signatures of authors' functions: derives schemas of parameters and results, and binds arguments.

Pydantic creates the schemas, one parameter at a time, and they are cached by annotation, so that a catalog of 10,000
functions costs what its distinct annotations cost (pydantic's own way, a model for each function, takes 0.7 ms each).
The model that validates arguments is created at the first call, and stops at the first fault of a list, so that no
caller decides how many are described. What the docstring says of a parameter is its description.
"""

import dataclasses
import functools
import inspect
import itertools
import typing
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pydantic
import pydantic_core
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema
from typing_extensions import is_typeddict

from deltamcp.catalog.arguments import ArgumentProblem, InvalidArgumentsError, problem_at
from deltamcp.catalog.items.docstring import parse_docstring
from deltamcp.catalog.items.function import MISSING, FunctionShape, docstring, inspect_function
from deltamcp.catalog.text import tool_text
from deltamcp.catalog.text.clean_text import MAX_PROBLEMS, MESSAGE_CHARS, cut, path_text, value_excerpt
from deltamcp.errors import ConfigurationError
from deltamcp.results.content import symbol_graph_type
from deltamcp.values import CONTENT_TYPES, JSON, ToolResult

_MAX_DESCRIBED_VALUES = 100
"""The values in arguments of which every problem is looked for; of larger ones only the first problem of each list."""
_FAIL_FAST_TYPES = frozenset(
    {"list", "tuple", "set", "frozenset", "dict", "deque", "counter", "frozendict", "ordered-dict"}
)
"""The types in pydantic's core schemas that can stop at their first invalid item."""
_FIELD_TYPES = frozenset({"model-fields", "typed-dict", "dataclass-args"})
_SCHEMA_LISTS = frozenset({"choices", "steps", "fields", "definitions"})
_MAX_UNKNOWN_FIELDS = 5
"""The unknown fields that each alternative of a union describes."""


class _UntitledJsonSchema(GenerateJsonSchema):
    """Pydantic's schemas without generated titles, which repeat the names at 5 tokens each."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: Any, mode: Any = "validation") -> dict[str, Any]:
        json_schema = super().generate(schema, mode)
        for name, definition in json_schema.get("$defs", {}).items():
            if definition.get("title") == name:
                del definition["title"]
        return json_schema


class Signature:
    """The parameters of a function: `schema` describes them to the client, `bind` validates arguments for a call."""

    __slots__ = (
        "_fields",
        "_full_validator",
        "_validator",
        "description",
        "function_shape",
        "names",
        "required",
        "schema",
    )

    def __init__(self, function: Callable[..., Any], context_type: type) -> None:
        """
        Raises:
            ConfigurationError: a parameter has no JSON Schema; the error's text says which and why.
        """
        self.function_shape: FunctionShape = inspect_function(function, context_type)
        self._fields = self.function_shape.named_fields()
        for name in self._fields:
            if name.startswith("_") or name == "model_config":  # pydantic takes these for its own
                raise ConfigurationError(f"a parameter cannot have the name {name!r}; give it another.")
        self.schema: dict[str, Any]
        self.names: tuple[str, ...]
        try:
            self.schema, self.names = _parameters_schema(self._fields)
        except pydantic.errors.PydanticUserError as error:
            raise _no_schema_error("the type of a parameter", error) from error
        hidden = {*self.function_shape.dependencies, self.function_shape.context_name or ""}
        documentation = parse_docstring(docstring(function) or "", self.names, hidden)
        self.schema = _with_descriptions(self.schema, documentation.parameters)
        self.description: str = documentation.description
        """The docstring without what it says of parameters, which the schema has."""
        self.required: list[str] = self.schema.get("required", [])
        self._validator: pydantic_core.SchemaValidator | None = None
        self._full_validator: pydantic_core.SchemaValidator | None = None

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        """Validates a client's arguments and converts them to keyword arguments of the function's types.

        An optional argument that is null, and whose type does not admit null, counts as absent.

        Raises:
            InvalidArgumentsError: the arguments do not fit.
        """
        sent = arguments
        if len(arguments) > len(self.names) + MAX_PROBLEMS:
            arguments = self._without_most_unknown(arguments)
        validator = self._validator
        if validator is None:
            validator = self._make_validators()
        try:
            # A model's fields are exactly its __dict__; aliases are resolved.
            return typing.cast("dict[str, Any]", validator.validate_python(arguments).__dict__)
        except pydantic_core.ValidationError as error:
            problems = error.errors(include_url=False)
        refused = {problem["loc"][0] for problem in problems if problem["loc"]}
        nulls = refused & {name for name in self.names if name not in self.required and _is_null(arguments, name)}
        if nulls:
            return self.bind({name: value for name, value in arguments.items() if name not in nulls})
        raise InvalidArgumentsError(self._first_problems(problems, sent))

    def _make_validators(self) -> pydantic_core.SchemaValidator:
        model = _make_model(self._fields)
        self._full_validator = typing.cast("pydantic_core.SchemaValidator", model.__pydantic_validator__)
        self._validator = fail_fast_validator(model.__pydantic_core_schema__)
        return self._validator

    def _without_most_unknown(self, arguments: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """Leaves out unknown arguments beyond the first few; the others are refused all the same."""
        unknown = itertools.islice((name for name in arguments if name not in self.names), MAX_PROBLEMS + 1)
        kept = {*self.names, *unknown}
        return {name: value for name, value in arguments.items() if name in kept}

    def _first_problems(
        self, problems: list[pydantic_core.ErrorDetails], arguments: Mapping[str, JSON]
    ) -> list[ArgumentProblem]:
        """Describes the first problems; `problems` has only the first of each list."""
        if _is_small(arguments):
            assert self._full_validator is not None, "both validators are made together"
            try:
                self._full_validator.validate_python(arguments)
            except pydantic_core.ValidationError as error:
                problems = error.errors(include_url=False)
            left_out = len(problems) - MAX_PROBLEMS
            more = [ArgumentProblem(f"There are {left_out} more problems.")] if left_out > 0 else []
        else:
            more = [ArgumentProblem("There may be more problems.")]
        return [*(self._problem(problem) for problem in problems[:MAX_PROBLEMS]), *more]

    def _problem(self, problem: pydantic_core.ErrorDetails) -> ArgumentProblem:
        location = _argument_path(problem["loc"], self.schema)
        keyword = _keyword(problem["type"])
        if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            if len(problem["loc"]) == 1:
                known = ", ".join(self.names) or "none"
                text = f"{path_text(problem['loc'])}: no such argument; known arguments: {known}."
                return problem_at(problem["loc"], keyword, text)
            around = _argument_path(problem["loc"][:-1], self.schema)
            where = (*around, problem["loc"][-1])
            return problem_at(where, keyword, f"{path_text(where)}: no such field; expected {self._part_text(around)}.")
        path = path_text(location)
        if problem["type"] == "missing":
            text = f"{path}: required, but missing; expected {self._part_text(location)}."
        else:
            message = cut(problem["msg"].removeprefix("Value error, "), MESSAGE_CHARS)
            text = f"{path}: {message}; got {value_excerpt(problem['input'])}; expected {self._part_text(location)}."
        return problem_at(location, keyword, text)

    def _part_text(self, location: list[int | str]) -> str:
        return tool_text.part_text(self.schema, _schema_at(self.schema, location))


def _is_null(arguments: Mapping[str, JSON], name: str) -> bool:
    return name in arguments and arguments[name] is None


def _no_schema_error(noun: str, error: Exception) -> ConfigurationError:
    if isinstance(error, pydantic.errors.PydanticSchemaGenerationError):  # it advises settings that authors do not have
        return ConfigurationError(f"{noun} has no JSON Schema; use plain types, models, dataclasses or typed dicts.")
    return ConfigurationError(f"{noun} has no JSON Schema: {str(error).splitlines()[0]}")


def _parameters_schema(fields: Mapping[str, tuple[Any, Any]]) -> tuple[dict[str, Any], tuple[str, ...]]:
    if not fields:
        return {"type": "object", "additionalProperties": False}, ()
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, (annotation, default) in fields.items():
        if isinstance(default, FieldInfo) or _has_alias(annotation):
            return _model_schema(fields)
        try:
            schema = _annotation_schema(annotation)
        except pydantic.errors.PydanticUserError as error:
            raise _no_schema_error(f"the type of the parameter {name!r}", error) from error
        if "$defs" in schema:
            return _model_schema(fields)
        if default is MISSING:
            required.append(name)
        elif default is not None or _can_be_null(schema):
            schema = {**schema, "default": _json_default(name, default)}
            if default is None:
                del schema["default"]
        properties[name] = schema
    parameters_schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters_schema["required"] = required
    parameters_schema["additionalProperties"] = False
    return parameters_schema, tuple(properties)


def _with_descriptions(schema: dict[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Returns a schema of parameters with descriptions where it has none; those of annotations come first."""
    if not texts:
        return schema
    properties = {
        name: {"description": texts[name], **part} if name in texts else part
        for name, part in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties}


def _json_default(name: str, default: Any) -> JSON:
    try:
        return pydantic_core.to_jsonable_python(default)
    except pydantic_core.PydanticSerializationError as error:
        raise ConfigurationError(f"the default of the parameter {name!r} cannot be written as JSON.") from error


def _model_schema(fields: Mapping[str, tuple[Any, Any]]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Creates the schema from a pydantic model, for fields with shared definitions, aliases or a `Field` as default."""
    model_schema = _make_model(fields).model_json_schema(schema_generator=_UntitledJsonSchema)
    model_schema.pop("title", None)
    model_schema.pop("description", None)
    for schema in model_schema["properties"].values():
        if schema.get("default", MISSING) is None:
            del schema["default"]
    return model_schema, tuple(model_schema["properties"])


def _annotation_schema(annotation: Any) -> dict[str, Any]:
    """Returns the schema of an annotation; caches it without the description, which differs between equal schemas."""
    extras: tuple[Any, ...] = getattr(annotation, "__metadata__", ())
    if len(extras) == 1 and isinstance(extras[0], FieldInfo) and _is_description_only(extras[0]):
        description = extras[0].description
        bare = typing.get_args(annotation)[0]
        constrained = typing.Annotated[bare, *extras[0].metadata] if extras[0].metadata else bare
        schema = _annotation_schema(constrained)
        return {"description": description, **schema} if description is not None else schema
    try:
        return _cached_schema(annotation)
    except TypeError:  # not hashable
        return _cached_schema.__wrapped__(annotation)


_SCHEMA_CHANGING_FIELDS = (
    "title",
    "examples",
    "json_schema_extra",
    "deprecated",
    "discriminator",
    "frozen",
    "field_title_generator",
)


def _is_description_only(field: FieldInfo) -> bool:
    """Returns whether a field adds only constraints and a description to the schema."""
    return all(getattr(field, name, None) is None for name in _SCHEMA_CHANGING_FIELDS)


@functools.lru_cache(maxsize=4096)
def _cached_schema(annotation: Any) -> dict[str, Any]:
    return pydantic.TypeAdapter(annotation).json_schema(schema_generator=_UntitledJsonSchema)


def _has_alias(annotation: Any) -> bool:
    return any(
        isinstance(extra, FieldInfo) and (extra.alias or extra.validation_alias or not extra.is_required())
        for extra in getattr(annotation, "__metadata__", ())
    )


def _can_be_null(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "null" or any(_can_be_null(branch) for branch in schema.get("anyOf", ()))


def _make_model(fields: Mapping[str, tuple[Any, Any]]) -> type[pydantic.BaseModel]:
    definitions: dict[str, Any] = {
        name: (annotation, ... if default is MISSING else default) for name, (annotation, default) in fields.items()
    }
    with warnings.catch_warnings():
        # Nothing uses the attributes of a model that parameters such as `schema` and `json` shadow.
        warnings.filterwarnings("ignore", "Field name .* shadows an attribute", UserWarning)
        return pydantic.create_model(
            "Arguments", __config__=pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False), **definitions
        )


def _is_small(value: JSON) -> bool:
    """Returns whether a value has so few values in it that every problem of them can be looked for."""
    pending, count = [value], 0
    while pending:
        node = pending.pop()
        children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        count += len(children)
        if count > _MAX_DESCRIBED_VALUES:
            return False
        pending.extend(children)
    return True


# Return values


def return_adapter(annotation: Any) -> pydantic.TypeAdapter[Any] | None:
    """Returns the adapter of a return type with named fields, which gets an output schema; None for other types.

    An output schema would add nothing to text, numbers, lists and free-form dicts.

    Raises:
        ConfigurationError: the type has no JSON Schema.
    """
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if not isinstance(annotation, type) or issubclass(annotation, (*CONTENT_TYPES, ToolResult)):
        return None
    if issubclass(annotation, symbol_graph_type()):
        return None
    has_fields = issubclass(annotation, pydantic.BaseModel) or dataclasses.is_dataclass(annotation)
    if not has_fields and not is_typeddict(annotation):
        return None
    try:
        return pydantic.TypeAdapter(annotation)
    except pydantic.errors.PydanticUserError as error:
        raise _no_schema_error("the return type", error) from error


def any_return_adapter(annotation: Any) -> pydantic.TypeAdapter[Any]:
    """Returns the adapter of any return type that JSON can express.

    Raises:
        ConfigurationError: there is no return type, or it has no JSON Schema.
    """
    if annotation in (Any, None, type(None), inspect.Parameter.empty):
        raise ConfigurationError("output_schema=True needs the type that the function returns; annotate it.")
    try:
        return pydantic.TypeAdapter(annotation)
    except pydantic.errors.PydanticUserError as error:
        raise _no_schema_error("the return type", error) from error


def output_schema(adapter: pydantic.TypeAdapter[Any]) -> dict[str, Any]:
    schema = adapter.json_schema(mode="serialization", schema_generator=_UntitledJsonSchema)
    schema.pop("title", None)
    return schema


# Problems

_KEYWORDS: Mapping[str, str] = MappingProxyType(
    {
        "missing": "required",
        "extra_forbidden": "additionalProperties",
        "unexpected_keyword_argument": "additionalProperties",
        "enum": "enum",
        "literal_error": "enum",
        "greater_than": "exclusiveMinimum",
        "greater_than_equal": "minimum",
        "less_than": "exclusiveMaximum",
        "less_than_equal": "maximum",
        "multiple_of": "multipleOf",
        "string_too_short": "minLength",
        "string_too_long": "maxLength",
        "string_pattern_mismatch": "pattern",
        "too_short": "minItems",
        "too_long": "maxItems",
    }
)
"""JSON Schema's keywords by pydantic's types of errors; those about types are not listed."""


def _keyword(error_type: str) -> str:
    if error_type in _KEYWORDS:
        return _KEYWORDS[error_type]
    return "type" if error_type.endswith(("_type", "_parsing", "_from_float")) else error_type


def _argument_path(location: tuple[int | str, ...], schema: dict[str, Any]) -> list[int | str]:
    """Removes union branches, such as `list[str]`, `constrained-int` or `Model`, from the path of a pydantic error."""
    names = _property_names(schema)
    return [part for index, part in enumerate(location) if index == 0 or isinstance(part, int) or part in names]


def _property_names(schema: Any) -> set[str]:
    names: set[str] = set()
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            names.update(node.get("properties", ()))
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return names


def _schema_at(schema: dict[str, Any], location: list[int | str]) -> JSON:
    """Returns the part of a schema that applies to one location in the arguments."""
    node: Any = schema
    for part in location:
        node = _resolve(node, schema)
        if isinstance(part, int):
            node = node.get("items", {})
        else:
            node = node.get("properties", {}).get(part, node.get("additionalProperties", {}))
    return _resolve(node, schema) if isinstance(node, dict) else {}


def _resolve(node: Any, root: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(node, dict):
        return {}
    reference = node.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        return typing.cast("dict[str, Any]", root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {}))
    for branch in node.get("anyOf", ()):
        if "$ref" in branch or "properties" in branch or "items" in branch:
            return _resolve(branch, root)
    return node


def fail_fast_validator(schema: Any) -> pydantic_core.SchemaValidator:
    """Returns a validator of a core schema that stops at the first invalid item of each list and dict.

    Pydantic's own collects every problem, some 400 bytes each, for each missing field of each item.
    """
    # With the models' own validators inside, only lists outside of models would stop.
    return pydantic_core.SchemaValidator(_fail_fast(schema, {}, False), _use_prebuilt=False)


def _fail_fast(node: Any, config: Mapping[str, Any], in_union: bool) -> Any:
    """Returns a copy of a part of a core schema. `config` is that of the model around it."""
    if isinstance(node, list | tuple):
        return type(node)(_fail_fast(child, config, in_union) for child in node)
    if not isinstance(node, dict):
        return node
    kind = node.get("type")
    config = node.get("config") or config
    in_union = in_union or kind == "union"
    copied: dict[str, Any] = {}
    for key, value in node.items():
        if key in _SCHEMA_LISTS and isinstance(value, dict):
            copied[key] = {name: _fail_fast(child, config, in_union) for name, child in value.items()}
        elif key in _SCHEMA_LISTS or key == "schema" or key.endswith("_schema"):
            copied[key] = _fail_fast(value, config, in_union)
        else:
            copied[key] = value
    if kind in _FAIL_FAST_TYPES:
        copied["fail_fast"] = True
    is_strict = (node.get("extra_behavior") or config.get("extra_fields_behavior")) == "forbid"
    if in_union and is_strict and kind in _FIELD_TYPES:
        return _refuse_many_fields(copied)
    return copied


def _refuse_many_fields(schema: dict[str, Any]) -> Any:
    """Adds a check that an object has hardly more fields than there are: every alternative would describe each."""
    most = 2 * len(schema["fields"]) + _MAX_UNKNOWN_FIELDS

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > most:
            raise pydantic_core.PydanticCustomError("too_many_fields", "Input has many fields that do not exist")
        return value

    return core_schema.no_info_before_validator_function(check, schema)
