"""Resources that a client can read at a URI, or at any URI that matches a template."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, Unpack

from msgspec import to_builtins

from deltamcp.catalog.completer import Completer
from deltamcp.catalog.options import check_options, omit_empty
from deltamcp.catalog.registration import docstring, function_name
from deltamcp.catalog.uri_template import LooseUriTemplate, UriTemplate
from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON, Annotations, Icon

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
MAX_URI_CHARS = 8192
"""The longest URI of a resource that a client may send; RFC 9110 asks for 8,000 at least."""


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
        self.template: UriTemplate | LooseUriTemplate | None = UriTemplate(uri) if "{" in uri else None
        from deltamcp.catalog.signature import Signature  # with pydantic, which items of other servers do not need

        self.signature = Signature(function, context_type)
        self.function_shape = self.signature.function_shape
        self.origin: object | None = None
        """Where the resource was registered, if its server is mounted."""
        variables = set(self.template.names) if isinstance(self.template, UriTemplate) else set()
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

    def variables(self, values: dict[str, str], uri: str) -> dict[str, str]:
        """Returns what the function gets of a URI that is read, from the values of its template's variables."""
        return values

    def with_uri(self, uri: str) -> "Resource":
        """Returns the same resource at another URI."""
        return Resource(self.function, self._context_type, uri, **self._options)

    def bind(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        """Converts the variables of the URI to keyword arguments of the function.

        Raises:
            InvalidArgumentsError: the variables do not fit the function's types.
        """
        return self.signature.bind(arguments)

    def completer(self, argument: str) -> Completer | None:
        """Returns what completes an argument of the template, if the resource itself knows that."""
        return None

    @property
    def uri(self) -> str:
        return str(self.list_item.get("uri") or self.list_item["uriTemplate"])
