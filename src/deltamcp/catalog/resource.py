"""Resources that a client can read at a URI, or at any URI that matches a template."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, Unpack
from urllib.parse import unquote

from msgspec import to_builtins

from deltamcp.catalog.options import check_options, omit_empty
from deltamcp.catalog.registration import docstring, function_name
from deltamcp.catalog.signature import Signature
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON, Annotations, Icon

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_EXPRESSION = re.compile(r"\{([+?/]?)([A-Za-z0-9_.,*]+)\}")


class UriTemplate:
    """The part of RFC 6570 that resources use: `{name}`, `{+name}` (slashes allowed) and `{?name,name}`.

    Matching refuses values that would escape a directory: an encoded slash or a dot segment inside `{name}`,
    a `..` segment inside `{+name}`.
    """

    def __init__(self, template: str) -> None:
        self.template = template
        pattern, position = "", 0
        self.names: list[str] = []
        self._query: list[str] = []
        self._greedy: set[str] = set()
        for found in _EXPRESSION.finditer(template):
            pattern += re.escape(template[position : found.start()])
            position = found.end()
            operator, names = found.group(1), found.group(2).replace("*", "").split(",")
            if operator == "?":
                self._query.extend(names)
                continue
            for name in names:
                if operator == "+":
                    self._greedy.add(name)
                self.names.append(name)
                pattern += f"(?P<{name}>{'.+' if operator == '+' else '[^/?#]+'})"
        variables = [*self.names, *self._query]
        is_nameable = len(set(variables)) == len(variables) and all(map(str.isidentifier, variables))
        if "{" in template[position:] or not variables or not is_nameable:
            raise ConfigurationError(
                f"the resource template {template!r} is not supported; use {{name}}, {{+name}} or {{?name}}, each name "
                "once."
            )
        self._pattern = re.compile(pattern + re.escape(template[position:]))
        self.names += self._query

    def match(self, uri: str) -> dict[str, str] | None:
        """Returns the decoded variables of a URI; None where the URI does not match."""
        query = ""
        if self._query and "?" in uri:
            uri, _, query = uri.partition("?")
        found = self._pattern.fullmatch(uri)
        if found is None:
            return None
        values = {name: unquote(value) for name, value in found.groupdict().items()}
        for name, value in values.items():
            segments = value.split("/") if name in self._greedy else [value]
            if ".." in segments or (name not in self._greedy and ("/" in value or value == ".")):
                return None
        for pair in query.split("&") if query else ():
            key, _, text = pair.partition("=")
            if key in self._query:
                values[key] = unquote(text)
        return values


class ResourceOptions(TypedDict, total=False):
    """The options that an author can give a resource."""

    name: str
    title: str
    description: str
    mime_type: str
    size: int
    annotations: Annotations
    icons: list[Icon]
    meta: dict[str, JSON]
    cache_seconds: float
    """How long clients may cache the contents (2026-07-28); not at all by default."""


class Resource:
    """A function that returns the contents of a URI. `list_item` is its entry in `resources/list`."""

    __slots__ = (
        "_context_type",
        "_options",
        "cache_seconds",
        "function",
        "function_shape",
        "list_item",
        "mime_type",
        "origin",
        "signature",
        "template",
    )

    def __init__(
        self, function: Callable[..., Any], context_type: type, uri: str, **options: Unpack[ResourceOptions]
    ) -> None:
        """
        Raises:
            ConfigurationError: the template's variables and the function's parameters differ.
        """
        check_options(options, ResourceOptions)
        self._context_type = context_type
        self._options = options
        self.function = function
        self.mime_type = options.get("mime_type")
        self.cache_seconds = options.get("cache_seconds", 0.0)
        if not _SCHEME.match(uri):
            raise ConfigurationError(f"the URI {uri!r} has no scheme; write it as notes://{uri.lstrip('/')}.")
        self.template = UriTemplate(uri) if "{" in uri else None
        self.signature = Signature(function, context_type)
        self.function_shape = self.signature.function_shape
        self.origin: Any = None
        """Where the resource was registered, if its server is mounted."""
        variables = set(self.template.names) if self.template else set()
        if not set(self.signature.required) <= variables or not variables <= set(self.signature.names):
            raise ConfigurationError(
                f"the URI {uri!r} has the variables {sorted(variables)}, and the function the parameters "
                f"{list(self.signature.names)}; give them the same names."
            )
        parts = {
            "uriTemplate" if self.template else "uri": uri,
            "name": options.get("name") or function_name(function),
            "title": options.get("title"),
            "description": options.get("description") or docstring(function),
            "mimeType": self.mime_type,
            "size": options.get("size"),
            "annotations": to_builtins(options.get("annotations")),
            "icons": to_builtins(options.get("icons")),
            "_meta": options.get("meta"),
        }
        self.list_item = omit_empty(parts)

    def with_uri(self, uri: str) -> "Resource":
        """Returns the same resource at another URI."""
        return Resource(self.function, self._context_type, uri, **self._options)

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        """Converts the variables of the URI to keyword arguments of the function.

        Raises:
            InvalidArgumentsError: the variables do not fit the function's types.
        """
        return self.signature.bind(arguments)

    @property
    def uri(self) -> str:
        return str(self.list_item.get("uri") or self.list_item["uriTemplate"])
