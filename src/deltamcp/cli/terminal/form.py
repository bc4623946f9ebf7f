"""A form of an elicitation as a person or a script fills it in: its fields, what they accept, and what was typed.

The servers' schemas are flat (MCP 2026-07-28, "Requested Schema"); keywords that MCP does not have there are ignored.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from deltamcp.cli.terminal.arguments import load_json
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON

_KEYWORDS = ("type", "format", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems")
"""The keywords by which a value is checked; choices are checked by themselves."""
_TYPE_WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "y or n"}
_BOOLEANS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_MAX_CHOICES_SHOWN = 20
"""How many choices a sentence names."""


class UnfitAnswerError(ConfigurationError):
    """An answer does not fit the form; the text says why, without a final full stop."""


class Choice(NamedTuple):
    """One of the values that a field accepts."""

    value: JSON
    title: str


class Field:
    """A field of a form."""

    def __init__(self, name: str, schema: Any, is_required: bool) -> None:
        self.name = name
        self.is_required = is_required
        self._schema: dict[str, Any] = schema if isinstance(schema, dict) else {}
        self.is_list = self._schema.get("type") == "array"
        items = self._schema.get("items")
        self.choices = _read_choices(items if self.is_list and isinstance(items, dict) else self._schema)

    @property
    def label(self) -> str:
        """The field's title, and its description if it has one; one line."""
        title, description = self._schema.get("title"), self._schema.get("description")
        parts = [title if isinstance(title, str) and title else self.name]
        parts += [description] if isinstance(description, str) and description else []
        return " - ".join(" ".join(part.split()) for part in parts)

    @property
    def has_default(self) -> bool:
        return "default" in self._schema

    @property
    def default(self) -> JSON:
        return self._schema.get("default")

    @property
    def kind(self) -> str:
        """What the field accepts, in words."""
        if self.choices:
            shown = ", ".join(str(choice.value) for choice in self.choices[:_MAX_CHOICES_SHOWN])
            more = ", ..." if len(self.choices) > _MAX_CHOICES_SHOWN else ""
            return f"{'some' if self.is_list else 'one'} of {shown}{more}"
        type_ = self._schema.get("type")
        word = _TYPE_WORDS.get(type_, "JSON") if isinstance(type_, str) else "JSON"
        format_ = self._schema.get("format")
        return f"{word} ({format_})" if isinstance(format_, str) else word

    def parse(self, text: str) -> JSON:
        """Returns the value that a person typed.

        Raises:
            UnfitAnswerError: the text is not a value of this field.
        """
        value = self._parse(text)
        self.check(value)
        return value

    def _parse(self, text: str) -> JSON:
        if self.is_list:
            return [self._parse_choice(part.strip()) for part in text.split(",") if part.strip()]
        if self.choices:
            return self._parse_choice(text.strip())
        match self._schema.get("type"):
            case "string":
                return text
            case "boolean":
                if text.strip().casefold() not in _BOOLEANS:
                    raise UnfitAnswerError("Answer y or n")
                return _BOOLEANS[text.strip().casefold()]
            case _:
                try:
                    return load_json(text)
                except (ValueError, RecursionError):
                    return text

    def _parse_choice(self, text: str) -> JSON:
        """Returns the choice that a text names by its value, its title or its number."""
        for choice in self.choices:
            if text == str(choice.value):
                return choice.value
        for number, choice in enumerate(self.choices, 1):
            if text.casefold() == choice.title.casefold() or text == str(number):
                return choice.value
        return text

    def check(self, value: JSON) -> None:
        """
        Raises:
            UnfitAnswerError: the field does not accept the value.
        """
        if self.choices:
            accepted = [choice.value for choice in self.choices]
            for item in value if self.is_list and isinstance(value, list) else [value]:
                if not any(type(item) is type(one) and item == one for one in accepted):
                    raise UnfitAnswerError(f"{json.dumps(item, ensure_ascii=False):.80} is not {self.kind}")
        import jsonschema_rs  # 30 ms to import

        schema = {keyword: self._schema[keyword] for keyword in _KEYWORDS if keyword in self._schema}
        try:
            validator = jsonschema_rs.validator_for(schema, validate_formats=True)
        except ValueError:  # the server's schema is invalid; it has to check the answer itself
            return
        for problem in validator.iter_errors(value):
            raise UnfitAnswerError(problem.message.rstrip("."))


class Form:
    """A form, or a page to open, that a server asks the user for."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        """`params` are those of `elicitation/create`."""
        self.message = str(params.get("message", ""))
        self.url = str(params.get("url", "")) if params.get("mode") == "url" else None
        schema = params.get("requestedSchema")
        properties = schema.get("properties") if isinstance(schema, dict) and self.url is None else None
        required = schema.get("required") if isinstance(schema, dict) else None
        self.fields = [
            Field(name, field, isinstance(required, list) and name in required)
            for name, field in (properties.items() if isinstance(properties, dict) else ())
        ]

    def __str__(self) -> str:
        """The question in one line, for an error."""
        message = " ".join(self.message.split())
        if self.url is not None:
            return f"{message!r} (open {self.url})"
        fields = [
            f"{field.name}: {field.kind}{', required' if field.is_required and not field.has_default else ''}"
            for field in self.fields
        ]
        return f"{message!r} ({'; '.join(fields) or 'accept or decline'})"

    def fill_in(self, content: Mapping[str, JSON]) -> dict[str, JSON]:
        """Returns the content to send: a script's answer, and the defaults of the fields that it leaves out.

        Raises:
            UnfitAnswerError: the form does not accept the answer.
        """
        fields = {field.name: field for field in self.fields}
        for name in content:
            if name not in fields:
                raise UnfitAnswerError(f"there is no field {name!r}")
        filled: dict[str, JSON] = {field.name: field.default for field in self.fields if field.has_default}
        filled.update(content)
        for name, field in fields.items():
            if name in content:
                try:
                    field.check(content[name])
                except UnfitAnswerError as error:
                    raise UnfitAnswerError(f"{name}: {error}") from None
            elif field.is_required and not field.has_default:
                raise UnfitAnswerError(f"{name} is required")
        return filled


def _read_choices(schema: Mapping[str, Any]) -> list[Choice]:
    """Reads the choices of a field in every form that MCP has had for them (SEP-1330)."""
    for keyword in ("oneOf", "anyOf"):
        branches = schema.get(keyword)
        if isinstance(branches, list):
            return [
                Choice(branch["const"], str(branch.get("title", branch["const"])))
                for branch in branches
                if isinstance(branch, dict) and "const" in branch
            ]
    values, titles = schema.get("enum"), schema.get("enumNames")
    if not isinstance(values, list):
        return []
    named = titles if isinstance(titles, list) and len(titles) == len(values) else values
    return [Choice(value, str(title)) for value, title in zip(values, named, strict=True)]
