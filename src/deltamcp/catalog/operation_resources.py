"""Operations as resources: JSON of the index, a category or an operation at `<scheme>://operations/...`."""

from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote

from deltamcp.catalog.directory import Category, Directory
from deltamcp.catalog.operation import Operation, normalize_id
from deltamcp.values import JSON
from deltamcp.work import Work

MAX_LISTED_OPERATIONS = 500
"""With more operations, only the index, the categories and a template are listed."""

_JSON = "application/json"


class OperationResources:
    """Lists and reads the resources of a directory of operations."""

    def __init__(self, scheme: str, directory: Directory) -> None:
        self._base = f"{scheme}://operations/"
        self._directory = directory

    def list_resources(self) -> list[dict[str, JSON]]:
        """Lists the index first, then each category and its operations."""
        size = self._directory.size
        index = {
            "uri": f"{self._base}index",
            "name": "operations",
            "description": f"The tree of all {size} operations",
            "mimeType": _JSON,
        }
        return [index, *self._list_category(self._directory.root, size <= MAX_LISTED_OPERATIONS)]

    def _list_category(self, category: Category, list_operations: bool) -> Iterator[dict[str, JSON]]:
        for action, operation in category.operations.items() if list_operations else ():
            uri = self.uri(f"{category.path}.{action}".lstrip("."))
            item = {"uri": uri, "name": operation.name, "mimeType": _JSON}
            summary = category.summaries.of(operation)
            yield {**item, "description": summary} if summary else item
        for child in category.children.values():
            count = len(child.all_operations())
            yield {
                "uri": self.uri(child.path),
                "name": child.path,
                "description": f"{count} operation{'s' if count != 1 else ''}",
                "mimeType": _JSON,
            }
            yield from self._list_category(child, list_operations)

    def template(self) -> dict[str, JSON]:
        """Returns the template that reaches every category and operation by its path."""
        return {
            "uriTemplate": f"{self._base}{{+path}}",
            "name": "operation",
            "description": "A category of operations or the schema of one: category/action",
            "mimeType": _JSON,
        }

    def read(self, uri: str, schema: Callable[[Operation], JSON], work: Work) -> JSON | None:
        """Reads the index, category or operation at a URI; None where there is none.

        Raises:
            WorkLimitError: there are too many operations.
        """
        path = self.parse_uri(uri)
        if path is None:
            return None
        if path == "index":
            return {"operations": self._directory.root.json_tree(work)}
        *above, last = path.split("/")
        category = self._directory.category_at(".".join(above))
        if category is not None and last in category.children:
            return {"operations": category.children[last].json_tree(work)}
        if category is not None and last in category.operations:
            return schema(category.operations[last])
        return None

    def parse_uri(self, uri: str) -> str | None:
        """Returns the decoded path after `operations/`; None where the URI does not belong to these resources."""
        if not uri.startswith(self._base):
            return None
        segments = [unquote(segment) for segment in uri.removeprefix(self._base).strip("/").split("/")]
        # An encoded slash would split a segment in two, and `..` would leave the tree.
        unsafe = any(segment in ("", ".", "..") or "/" in segment for segment in segments)
        return None if unsafe else normalize_id("/".join(segments))

    def uri(self, id_: str) -> str:
        """Returns the URI of an operation or a category."""
        return self._base + quote(id_.replace(".", "/"))
