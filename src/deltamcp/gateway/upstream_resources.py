"""Resources of upstreams: which upstream has the resource at a URI, listed or not."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from deltamcp.catalog.mount import Mount
from deltamcp.catalog.remote_items import RemoteResource
from deltamcp.context import Context
from deltamcp.upstreams.upstream import Upstream
from deltamcp.values import JSON, RawResult

_MAX_SEEN = 10_000
"""The URIs in results that are remembered; the ones not seen for longest are forgotten."""
_MAX_URI_CHARS = 2_000


class SeenUris:
    """Remembers which upstream mentioned a URI in a result, because servers need not list all that they have."""

    def __init__(self) -> None:
        self._upstreams: OrderedDict[str, Upstream] = OrderedDict()

    def learn(self, upstream: Upstream, result: Mapping[str, JSON]) -> None:
        """Takes note of the links and resources in a result of any method."""
        for key in ("content", "contents", "messages"):
            items = result.get(key)
            for item in items if isinstance(items, list) else ():
                self._learn_item(upstream, item)

    def _learn_item(self, upstream: Upstream, item: Any) -> None:
        if not isinstance(item, dict):
            return
        uri = item.get("uri")
        if isinstance(uri, str) and len(uri) <= _MAX_URI_CHARS:
            self._upstreams[uri] = upstream
            self._upstreams.move_to_end(uri)
            if len(self._upstreams) > _MAX_SEEN:
                self._upstreams.popitem(last=False)
        for key in ("resource", "content"):  # of an embedded resource, and of a prompt's message
            if key in item:
                self._learn_item(upstream, item[key])

    def get(self, uri: str) -> Upstream | None:
        return self._upstreams.get(uri)


class UpstreamResource(RemoteResource):
    """A resource or a template of an upstream, listed where the upstream has it or under another URI."""

    def __init__(
        self,
        upstream: Upstream,
        seen: SeenUris,
        list_item: dict[str, JSON],
        *,
        segment: str = "",
        can_complete: bool = False,
    ) -> None:
        """
        Args:
            segment: What the URI here has after its scheme, as `Mount` puts it there; empty if the URI is the same.
            can_complete: Whether the upstream completes the arguments of a template.
        """
        self.upstream = upstream
        self._seen = seen
        self._uri_there = str(list_item.get("uriTemplate", list_item.get("uri")))
        self._segment = segment
        shown = Mount(segment).uri(self._uri_there) if segment else None
        super().__init__(self._read, list_item, shown, self._complete if can_complete else None)

    def uri_there(self, uri: str) -> str:
        """Returns the URI that the upstream has for one of here."""
        if not self._segment:
            return uri
        separator = "://" if "://" in self._uri_there else ":"
        scheme, _, rest = uri.partition(separator)
        return f"{scheme}{separator}{rest.removeprefix(f'{self._segment}/')}"

    async def _read(self, uri: str, context: Context) -> RawResult:
        result = await self.upstream.forward("resources/read", {"uri": self.uri_there(uri)}, context, repeatable=True)
        self._seen.learn(self.upstream, result.fields)
        return result

    async def _complete(self, argument: str, value: str, arguments: dict[str, str], context: Context) -> RawResult:
        reference: dict[str, JSON] = {"type": "ref/resource", "uri": self._uri_there}
        return await complete(self.upstream, reference, argument, value, arguments, context)


class UnlistedResources:
    """Finds the resource at a URI that is not listed and that no template fits."""

    def __init__(self, seen: SeenUris, status: RemoteResource) -> None:
        """`status` is the gateway's own resource, which a gateway that is to look like its upstreams does not list."""
        self._seen = seen
        self._status = status
        self.upstreams: Sequence[Upstream] = ()
        """Those that say they have resources."""

    def find(self, uri: str) -> RemoteResource | None:
        """Returns the gateway's own, that of the upstream that mentioned it, or that of the only one with resources."""
        if uri == self._status.uri:
            return self._status
        upstream = self._seen.get(uri)
        if upstream is None and len(self.upstreams) == 1:
            upstream = self.upstreams[0]
        return None if upstream is None else UpstreamResource(upstream, self._seen, {"uri": uri})


async def complete(
    upstream: Upstream,
    reference: dict[str, JSON],
    argument: str,
    value: str,
    arguments: dict[str, str],
    context: Context,
) -> RawResult:
    """Has an upstream suggest values for an argument."""
    params: dict[str, JSON] = {"ref": reference, "argument": {"name": argument, "value": value}}
    if arguments:
        params["context"] = {"arguments": arguments}
    return await upstream.forward("completion/complete", params, context, repeatable=True)
