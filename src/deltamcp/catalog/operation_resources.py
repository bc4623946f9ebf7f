"""Operations as resources: `<scheme>://operations/index`, a category, an operation, each as JSON."""

from collections.abc import Callable, Iterator
from urllib.parse import unquote

from deltamcp.catalog.directory import Category, Directory
from deltamcp.catalog.operation import Operation
from deltamcp.values import JSON

MAX_LISTED_OPERATIONS = 500
"""Operations listed each; of more only the index, the categories and a template are."""

_JSON = "application/json"


class OperationResources:
    """Where each operation can be read."""

    def __init__(self, scheme: str, directory: Directory) -> None:
        self._base = f"{scheme}://operations/"
        self._directory = directory

    def list_resources(self) -> list[dict[str, JSON]]:
        """The index first, then every category with what is in it."""
        size = self._directory.size
        index = {
            "uri": f"{self._base}index",
            "name": "operations",
            "description": f"The tree of all {size} operations",
            "mimeType": _JSON,
        }
        return [index, *self._list_category(self._directory.root, size <= MAX_LISTED_OPERATIONS)]

    def _list_category(self, category: Category, each: bool) -> Iterator[dict[str, JSON]]:
        for action, operation in category.operations.items() if each else ():
            place = self.uri(f"{category.path}.{action}".lstrip("."))
            listed = {"uri": place, "name": operation.name, "mimeType": _JSON}
            yield {**listed, "description": operation.summary} if operation.summary else listed
        for child in category.children.values():
            count = len(child.all_operations())
            yield {
                "uri": self.uri(child.path),
                "name": child.path,
                "description": f"{count} operation{'s' if count != 1 else ''}",
                "mimeType": _JSON,
            }
            yield from self._list_category(child, each)

    def template(self) -> dict[str, JSON]:
        """Any of them by path."""
        return {
            "uriTemplate": f"{self._base}{{+path}}",
            "name": "operation",
            "description": "A category of operations or the schema of one: category/action",
            "mimeType": _JSON,
        }

    def read(self, uri: str, schema: Callable[[Operation], JSON]) -> JSON | None:
        """What stands at an address; None where it is none of these, or nothing is there."""
        path = self.parse_uri(uri)
        if path is None:
            return None
        if path == "index":
            return {"operations": self._directory.root.json_tree()}
        *above, last = path.split("/")
        category = self._directory.category_at(".".join(above))
        if category is not None and last in category.children:
            return {"operations": category.children[last].json_tree()}
        if category is not None and last in category.operations:
            return schema(category.operations[last])
        return None

    def parse_uri(self, uri: str) -> str | None:
        """The part after `operations/`, decoded; None where the address is not one of ours."""
        if not uri.startswith(self._base):
            return None
        segments = [unquote(segment) for segment in uri.removeprefix(self._base).strip("/").split("/")]
        # An encoded slash would make two segments of one, `..` would climb.
        unsafe = any(segment in ("", ".", "..") or "/" in segment for segment in segments)
        return None if unsafe else "/".join(segments)

    def uri(self, id_: str) -> str:
        """The address of an operation or category."""
        return self._base + id_.replace(".", "/")
