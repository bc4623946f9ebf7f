"""Client libraries that strangers published: what is installed, and the program of ours that puts each to use."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ClientLibrary:
    registry: Literal["npm", "pypi"]
    package: str
    version: str
    program: str
    """The file in `programs/` that its own interpreter runs."""
    beside: tuple[str, ...] = ()
    """What else is installed with it."""
    ci: bool = False
    """Whether `make test` runs it."""
    sends_null: bool = True
    """Whether it passes on a null for an argument whose schema does not admit it."""


CLIENT_LIBRARIES = {
    "langchain": ClientLibrary("pypi", "langchain-mcp-adapters", "0.3.2", "langchain_tools.py", ci=True),
    "pydantic-ai-1": ClientLibrary("pypi", "pydantic-ai-slim[mcp]", "1.107.10", "pydantic_ai_agent.py", ci=True),
    "pydantic-ai-2": ClientLibrary("pypi", "pydantic-ai-slim[mcp]", "2.66.0", "pydantic_ai_agent.py"),
    "openai-agents": ClientLibrary("pypi", "openai-agents", "0.24.0", "openai_agent.py"),
    "mcp-use": ClientLibrary("pypi", "mcp-use", "1.7.1", "mcp_use_tools.py"),
    "fastmcp": ClientLibrary("pypi", "fastmcp", "4.1.2", "fastmcp_client.py", ci=True),
    "autogen": ClientLibrary("pypi", "autogen-ext[mcp]", "0.7.5", "autogen_tools.py", beside=("mcp<2",)),
    "dspy": ClientLibrary("pypi", "dspy[mcp]", "3.4.1", "dspy_tools.py", sends_null=False),
    "typescript-1": ClientLibrary("npm", "@modelcontextprotocol/sdk", "1.32.2", "typescript_client.cjs"),
    "typescript-2": ClientLibrary("npm", "@modelcontextprotocol/client", "2.4.0", "typescript_client.cjs"),
}
