"""`Mount`: how the items of a mounted server are called in the server that has them."""

from typing import TypeVar, cast

from deltamcp.catalog.items.operation import Operation, is_dotted_path, is_id_segment
from deltamcp.catalog.items.prompt import Prompt
from deltamcp.catalog.items.resource import Resource, split_scheme
from deltamcp.errors import ConfigurationError
from deltamcp.results.policy import ResultPolicy
from deltamcp.values import Kind

T = TypeVar("T", bound=Operation | Resource | Prompt)


class Mount:
    """Adds a prefix to names, ids and URIs; an empty prefix leaves them as they are."""

    def __init__(self, prefix: str) -> None:
        """
        Raises:
            ConfigurationError: the prefix cannot be a part of an id.
        """
        if not isinstance(prefix, str) or (prefix and not (prefix.isascii() and is_id_segment(prefix))):
            raise ConfigurationError(f"The prefix {prefix!r} must be up to 64 letters a to z, digits, '_' or '-'.")
        self._prefix = prefix

    def name(self, kind: Kind, name: str) -> str:
        """Returns the name of a tool or a prompt, or the URI of a resource or a template."""
        if kind in (Kind.RESOURCES, Kind.TEMPLATES):
            return self.uri(name)
        return f"{self._prefix}_{name}" if self._prefix else name

    def uri(self, uri: str) -> str:
        """Returns a URI with the prefix as the first segment after the scheme, which may have a meaning of its own."""
        if not self._prefix:
            return uri
        scheme, rest = split_scheme(uri)
        return f"{scheme}{self._prefix}/{rest}"

    def inner_uri(self, uri: str) -> str | None:
        """Returns the URI that the mounted server has for one of here; None if it has none."""
        if not self._prefix:
            return uri
        scheme, rest = split_scheme(uri)
        return scheme + rest.removeprefix(f"{self._prefix}/") if rest.startswith(f"{self._prefix}/") else None

    def inner_name(self, name: str) -> str | None:
        """Returns the name or id that the mounted server has for one of here; None if it has none."""
        if not self._prefix:
            return name
        ends = tuple(f"{self._prefix}{end}" for end in "_./")
        return name[len(self._prefix) + 1 :] if name.startswith(ends) else None

    def category(self, category: str) -> str:
        """Returns where a category of the mounted server is here."""
        return f"{self._prefix}.{category}" if self._prefix else category

    def item(self, item: T, policy: ResultPolicy | None) -> T:
        """Returns the item with its name in the other server; `policy` is the mounted server's result policy."""
        mounted: Operation | Resource | Prompt
        if isinstance(item, Operation):
            name = self.name(Kind.TOOLS, item.name)
            id_ = f"{self._prefix}.{item.id}" if self._prefix else item.id
            # Only a tool without a category may have a name that is no path; then it has no category here either.
            mounted = item.with_name(name, id_ if is_dotted_path(id_) else name, policy)
        elif isinstance(item, Prompt):
            mounted = item.with_name(self.name(Kind.PROMPTS, item.name))
        else:
            mounted = item.with_uri(self.uri(item.uri))
        return cast("T", mounted)
