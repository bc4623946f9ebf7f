"""What an operator or an author sets about MCP-lite."""

from typing import Any, Literal, TypedDict

import msgspec
from msgspec import Struct

from deltamcp.dialects.mcp_lite import LiteOptions
from deltamcp.dialects.mcp_lite_bodies import ContentStyle
from deltamcp.errors import ConfigurationError


class McpLiteOptions(TypedDict, total=False):
    """The options in `HttpOptions(mcp_lite={...})`."""

    prefix: str
    """Where the paths of MCP-lite begin; `/mcp-lite/v1` by default."""
    root_aliases: bool
    """Whether the paths are served at the root too, such as `/tools` and `/rpc`."""
    batches: bool
    """Whether a body may have several requests, up to 16, as it may by default."""
    promise_http_status: Literal[200, 202]
    """The HTTP status of a promise: 200, as of every result, or 202, as NLWeb has it."""
    content_style: ContentStyle
    """What `content` has: MCP's blocks ("mcp", the default), the objects of the result themselves ("raw"), or objects
    that are both ("both")."""
    default_type: str | None
    """The `@type` of tools whose author set none; by default they have none."""
    await_tool: bool
    """Whether promises can also be redeemed by NLWeb's `await`, as a tool and as a path."""
    prompts: bool
    """Whether the server's prompts can be listed, at `/prompts` and by `prompts/list`, and used by `prompts/get`."""


class McpLiteSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The options, with those filled in that were not set."""

    prefix: str = "/mcp-lite/v1"
    root_aliases: bool = False
    batches: bool = True
    promise_http_status: Literal[200, 202] = 200
    content_style: ContentStyle = "mcp"
    default_type: str | None = None
    await_tool: bool = False
    prompts: bool = False

    @property
    def dialect(self) -> LiteOptions:
        """The options of the dialect."""
        return LiteOptions(self.content_style, self.default_type, self.await_tool, self.prompts)


def read_settings(options: bool | McpLiteOptions) -> McpLiteSettings | None:
    """Returns the settings; None if MCP-lite is not served.

    Raises:
        ConfigurationError: there is no such option, or it has another value.
    """
    if options is False:
        return None
    given: Any = {} if options is True else options
    try:
        return msgspec.convert(given, McpLiteSettings)
    except msgspec.ValidationError as error:
        known = ", ".join(McpLiteSettings.__struct_fields__)
        raise ConfigurationError(f"mcp_lite: {error}. The options are {known}.") from None
