"""Forms for users: the flat schemas elicitation allows, and reading what was filled in. Pure."""

from typing import Any

import pydantic

from deltamcp.errors import ConfigurationError, InputDeclinedError
from deltamcp.values import JSON

_FLAT = {"string", "integer", "number", "boolean", "array"}


def form_schema(schema: type | dict[str, JSON]) -> dict[str, JSON]:
    """A form as elicitation wants it: an object of primitive fields, no references, no nulls.

    Raises:
        ConfigurationError: a field is not primitive.
    """
    made = schema if isinstance(schema, dict) else pydantic.TypeAdapter(schema).json_schema()
    definitions = made.get("$defs", {})
    properties = {name: _flat(name, field, definitions) for name, field in made.get("properties", {}).items()}
    form: dict[str, JSON] = {"type": "object", "properties": properties}
    if made.get("required"):
        form["required"] = made["required"]
    return form


def _flat(name: str, field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, JSON]:
    if "$ref" in field:
        reference = field["$ref"].removeprefix("#/$defs/")
        field = {**definitions.get(reference, {}), **{key: value for key, value in field.items() if key != "$ref"}}
    branches = [branch for branch in field.get("anyOf", ()) if branch.get("type") != "null"]
    if len(branches) == 1:
        rest = {key: value for key, value in field.items() if key != "anyOf"}
        field = {**_flat(name, branches[0], definitions), **rest}
    if field.get("default", ...) is None:
        del field["default"]
    if field.get("type") not in _FLAT:
        raise ConfigurationError(f"The form field {name!r} must be text, a number, a boolean or a choice.")
    return field


def read_form(schema: type | dict[str, JSON], content: JSON) -> Any:
    """What the user filled in: an instance of the form's type, or the dict under a raw schema.

    Raises:
        InputDeclinedError: it does not fit the form.
    """
    if not isinstance(content, dict):
        raise InputDeclinedError("The client accepted the form but sent no content.")
    if isinstance(schema, dict):
        from jsonschema_rs import validator_for

        for problem in validator_for(form_schema(schema)).iter_errors(content):
            raise InputDeclinedError(f"The client's answer does not fit the form: {problem.message}.")
        return content
    try:
        return pydantic.TypeAdapter(schema).validate_python(content)
    except pydantic.ValidationError as error:
        raise InputDeclinedError(f"The client's answer does not fit the form: {error.errors()[0]['msg']}.") from None
