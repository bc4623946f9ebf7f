"""GitHub's answers, recorded, as a server of the official SDK whose functions return lists and objects."""

import json
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer

server: MCPServer = MCPServer("github", version="1", log_level="WARNING")
RECORDED = Path(sys.argv[1]) / "results" / "github"


def _recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


@server.tool()
def list_issues(owner: str, repo: str) -> list[dict[str, Any]]:
    """List the issues of a GitHub repository, pull requests among them, newest first."""
    found: list[dict[str, Any]] = _recorded("list_issues")
    return found


@server.tool()
def list_teams(organization: str) -> list[dict[str, Any]]:
    """List the teams of a GitHub organization."""
    found: list[dict[str, Any]] = _recorded("teams")
    return found


@server.tool()
def list_issue_comments(owner: str, repo: str, issue_number: int) -> list[dict[str, Any]]:
    """List the comments on an issue or a pull request."""
    found: list[dict[str, Any]] = _recorded("issue_comments")
    return found


@server.tool()
def list_workflow_runs(owner: str, repo: str) -> dict[str, Any]:
    """List the runs of a repository's workflows, with what they concluded."""
    found: dict[str, Any] = _recorded("workflow_runs")
    return found


@server.tool()
def search_code(query: str) -> dict[str, Any]:
    """Search code on GitHub: files that match, each with its repository."""
    found: dict[str, Any] = _recorded("search_code")
    return found


if __name__ == "__main__":
    server.run()
