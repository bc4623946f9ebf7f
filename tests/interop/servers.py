"""Servers that strangers published: what is installed, how each starts without a network, and a call that it answers.

Versions and numbers of tools are those that `mcp-2025-and-2026.md` of the shared specifications measured. In words,
values and arguments `{folder}` is a scratch folder with `hello.txt` and a git repository called `repository`, and
`{web}` the address that `web.py` serves instead of the vendors' own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["answers", "fails", "refuses"]
"""A result, a result that is marked as an error, or an error of JSON-RPC instead of a result."""


@dataclass(frozen=True)
class Call:
    """A call and a piece of what comes back."""

    tool: str
    arguments: dict[str, Any]
    says: str
    outcome: Outcome = "answers"


@dataclass(frozen=True)
class Server:
    registry: Literal["npm", "pypi"]
    package: str
    version: str
    tools: int
    call: Call
    words: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    """What else is installed with it."""
    program: str = ""
    """Its name, where it is not the package's and not the first of several."""
    ci: bool = False
    """Whether `make test` runs it: small, and quick to install."""


NOWHERE = "http://127.0.0.1:9"
"""An address of this machine where nobody listens: discard, a service that nobody has run for decades."""

OFFLINE = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), NOWHERE),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1"),
    "NODE_USE_ENV_PROXY": "1",
}
"""Keeps every server on this machine, so that a test says the same with a network and without."""

AWS = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_REGION": "us-east-1"}

SERVERS = {
    "everything": Server(
        *("npm", "@modelcontextprotocol/server-everything", "2026.8.31", 13),
        Call("get-sum", {"a": 2, "b": 40}, "The sum of 2 and 40 is 42."),
        words=("stdio",),
        ci=True,
    ),
    "filesystem": Server(
        *("npm", "@modelcontextprotocol/server-filesystem", "2026.8.31", 14),
        Call("read_text_file", {"path": "{folder}/hello.txt"}, "Hello from afar."),
        words=("{folder}",),
        ci=True,
    ),
    "gitlab": Server(
        *("npm", "@modelcontextprotocol/server-gitlab", "2025.4.25", 9),
        Call("get_file_contents", {"project_id": "7", "file_path": "docs"}, "docs/guide.md"),
        environment={"GITLAB_PERSONAL_ACCESS_TOKEN": "none", "GITLAB_API_URL": "{web}"},
        # It forgets to say that it needs zod, and of version 4, which npm gives it, it makes schemas without a type.
        beside=("zod@4.6.7", "zod-to-json-schema@3.25.2"),
        ci=True,
    ),
    "chrome-devtools": Server(
        *("npm", "chrome-devtools-mcp", "1.11.0", 32),
        Call("list_pages", {}, "Chrome failed to start", "fails"),
        words=("--executablePath", "{folder}/no-browser", "--no-usage-statistics"),
        program="chrome-devtools-mcp",
        ci=True,
    ),
    "time": Server(
        *("pypi", "mcp-server-time", "2026.10.19", 2),
        Call(
            "convert_time",
            {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "Asia/Kolkata"},
            "T08:30:00+05:30",
        ),
        ci=True,
    ),
    "git": Server(
        *("pypi", "mcp-server-git", "2026.10.19", 12),
        Call("git_log", {"repo_path": "{folder}/repository"}, "The first commit"),
        words=("--repository", "{folder}/repository"),
        ci=True,
    ),
    # The newest of the SDK's first major version, with a server of ours.
    "sdk-1x": Server(
        *("pypi", "mcp", "1.30.0", 2),
        Call("add", {"a": 2, "b": 40}, "42"),
        words=(str(Path(__file__).parent / "programs" / "sdk_1x_server.py"),),
        program="python",
        ci=True,
    ),
    "memory": Server(
        *("npm", "@modelcontextprotocol/server-memory", "2026.8.31", 9),
        Call(
            "create_entities",
            {"entities": [{"name": "Ada", "entityType": "person", "observations": ["writes programs"]}]},
            "writes programs",
        ),
        environment={"MEMORY_FILE_PATH": "{folder}/memory.jsonl"},
        ci=True,
    ),
    "sequential-thinking": Server(
        *("npm", "@modelcontextprotocol/server-sequential-thinking", "2026.8.31", 1),
        Call(
            "sequentialthinking",
            {"thought": "Tea first.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
            "thoughtHistoryLength",
        ),
    ),
    "github": Server(
        *("npm", "@modelcontextprotocol/server-github", "2025.4.8", 26),
        Call("search_repositories", {"query": "tea"}, "fetch failed", "refuses"),
        environment={"GITHUB_PERSONAL_ACCESS_TOKEN": "none"},
    ),
    "slack": Server(
        *("npm", "@modelcontextprotocol/server-slack", "2025.4.25", 8),
        Call("slack_list_channels", {}, "fetch failed"),
        environment={"SLACK_BOT_TOKEN": "none", "SLACK_TEAM_ID": "none"},
    ),
    "ms-365": Server(
        *("npm", "@softeria/ms-365-mcp-server", "0.155.0", 344),
        Call("list-accounts", {}, '"count":0'),
        words=("--org-mode",),
    ),
    "zereight-gitlab": Server(
        *("npm", "@zereight/mcp-gitlab", "2.1.64", 201),
        Call("get_project", {"project_id": "7"}, "darjeeling"),
        environment={
            "GITLAB_PERSONAL_ACCESS_TOKEN": "none",
            "GITLAB_API_URL": "{web}",
            **dict.fromkeys(("USE_PIPELINE", "USE_MILESTONE", "USE_GITLAB_WIKI"), "true"),
        },
    ),
    "firecrawl": Server(
        *("npm", "firecrawl-mcp", "3.26.0", 29),
        Call("firecrawl_map", {"url": "http://tea.test"}, "http://tea.test/darjeeling"),
        environment={"FIRECRAWL_API_KEY": "none", "FIRECRAWL_API_URL": "{web}"},
    ),
    "notion": Server(
        *("npm", "@notionhq/notion-mcp-server", "2.5.2", 24),
        Call("API-get-self", {}, "darjeeling"),
        environment={"NOTION_TOKEN": "none", "BASE_URL": "{web}"},
    ),
    "mongodb": Server(
        *("npm", "mongodb-mcp-server", "3.0.4", 27),
        Call("list-connections", {}, "There are no active connections."),
        environment={"MDB_MCP_TELEMETRY": "disabled"},
    ),
    "circleci": Server(
        *("npm", "@circleci/mcp-server-circleci", "0.20.0", 13),
        Call("list_followed_projects", {"params": {}}, "darjeeling (projectSlug: gh/tea/darjeeling)"),
        environment={"CIRCLECI_TOKEN": "none", "CIRCLECI_BASE_URL": "{web}", "DISABLE_TELEMETRY": "true"},
    ),
    "hubspot": Server(
        *("npm", "@hubspot/mcp-server", "0.4.0", 21),
        Call(
            "hubspot-get-link",
            {
                "portalId": "1",
                "uiDomain": "app.hubspot.com",
                "pageRequests": [{"pagetype": "record", "objectTypeId": "0-1", "objectId": "7"}],
            },
            "https://app.hubspot.com/contacts/1/record/0-1/7",
        ),
        environment={"PRIVATE_APP_ACCESS_TOKEN": "none"},
    ),
    "sentry": Server(
        *("npm", "@sentry/mcp-server", "0.39.0", 9),
        Call("search_sentry_tools", {"query": "releases"}, "find_releases"),
        words=("--access-token", "none"),
    ),
    "shopify-dev": Server(
        *("npm", "@shopify/dev-mcp", "1.16.0", 5),
        Call("learn_shopify_api", {"api": "admin"}, "Shopify Admin API GraphQL"),
        environment={"OPT_OUT_INSTRUMENTATION": "true"},
    ),
    "kubernetes": Server(
        *("npm", "mcp-server-kubernetes", "4.1.7", 23),
        Call("kubectl_context", {"operation": "list"}, '"contexts": []'),
    ),
    "playwright": Server(
        *("npm", "@playwright/mcp", "0.0.83", 25),
        Call("browser_navigate", {"url": "{web}/hello"}, "no-browser", "fails"),
        words=("--headless", "--executable-path", "{folder}/no-browser"),
    ),
    "airtable": Server(
        *("npm", "airtable-mcp-server", "1.14.0", 16),
        Call("list_bases", {}, "fetch failed", "fails"),
        environment={"AIRTABLE_API_KEY": "none"},
    ),
    "tavily": Server(
        *("npm", "tavily-mcp", "0.2.22", 5),
        Call("tavily_search", {"query": "tea"}, "ECONNREFUSED", "fails"),
        environment={"TAVILY_API_KEY": "none"},
    ),
    "context7": Server(
        *("npm", "@upstash/context7-mcp", "4.1.1", 2),
        Call("resolve-library-id", {"query": "tea", "libraryName": "react"}, "fetch failed"),
    ),
    "figma": Server(
        *("npm", "figma-developer-mcp", "0.13.2", 2),
        Call("get_figma_data", {"fileKey": "tea"}, "Could not connect to the Figma API", "fails"),
        words=("--stdio", "--figma-api-key", "none"),
    ),
    "elasticsearch": Server(
        *("npm", "@elastic/mcp-server-elasticsearch", "0.3.1", 4),
        Call("list_indices", {"indexPattern": "*"}, "darjeeling"),
        environment={"ES_URL": "{web}"},
    ),
    "eslint": Server(
        *("npm", "@eslint/mcp", "0.3.13", 1),
        Call("lint-files", {"filePaths": ["{folder}/hello.txt"]}, "Could not find config file.", "fails"),
    ),
    "sqlite": Server(
        *("pypi", "mcp-server-sqlite", "2025.4.25", 6),
        Call("read_query", {"query": "SELECT 6 * 7 AS answer"}, "{'answer': 42}"),
        words=("--db-path", "{folder}/tea.db"),
        beside=("mcp<2",),
        ci=True,
    ),
    "fetch": Server(
        *("pypi", "mcp-server-fetch", "2026.10.24", 1),
        Call("fetch", {"url": "{web}/hello"}, "Hello from afar."),
        words=("--allow-private-ips",),
    ),
    "markitdown": Server(
        *("pypi", "markitdown-mcp", "0.0.1a7", 1),
        Call("convert_to_markdown", {"uri": "file://{folder}/hello.txt"}, "Hello from afar."),
    ),
    "excel": Server(
        *("pypi", "excel-mcp-server", "2.2.2", 46),
        Call("create_workbook", {"path": "{folder}/tea.xlsx"}, "tea.xlsx"),
        words=("stdio",),
    ),
    "office-word": Server(
        *("pypi", "office-word-mcp-server", "1.1.11", 54),
        Call("create_document", {"filename": "{folder}/tea.docx", "title": "Tea"}, "created successfully"),
        program="word_mcp_server",
    ),
    "arxiv": Server(
        *("pypi", "arxiv-mcp-server", "0.8.2", 19),
        Call("list_papers", {}, '"total_papers": 0'),
        words=("--storage-path", "{folder}/papers"),
    ),
    "atlassian": Server(
        *("pypi", "mcp-atlassian", "0.23.1", 98),
        Call("jira_get_link_types", {}, "is steeped by"),
        environment={
            "JIRA_URL": "{web}",
            "JIRA_USERNAME": "none",
            "JIRA_API_TOKEN": "none",
            "CONFLUENCE_URL": "{web}/wiki",
            "CONFLUENCE_USERNAME": "none",
            "CONFLUENCE_API_TOKEN": "none",
            "PYTHONHASHSEED": "0",  # a set's order is in a default, so that without it each start gives another list
        },
    ),
    "clickhouse": Server(
        *("pypi", "mcp-clickhouse", "0.7.0", 3),
        Call("list_databases", {}, "Connection refused", "fails"),
        environment={
            "CLICKHOUSE_HOST": "127.0.0.1",
            "CLICKHOUSE_PORT": "9",
            "CLICKHOUSE_SECURE": "false",
            "CLICKHOUSE_USER": "none",
            "CLICKHOUSE_PASSWORD": "none",
        },
    ),
    "aws-documentation": Server(
        *("pypi", "awslabs.aws-documentation-mcp-server", "1.2.3", 5),
        Call("read_documentation", {"url": "http://tea.test"}, "URL must be from list of supported domains", "fails"),
    ),
    "aws-dynamodb": Server(
        *("pypi", "awslabs.dynamodb-mcp-server", "2.1.8", 8),
        Call("dynamodb_data_modeling", {}, "DynamoDB Data Modeling Expert"),
        environment=AWS,
    ),
    "aws-eks": Server(
        *("pypi", "awslabs.eks-mcp-server", "0.2.1", 16),
        Call("get_eks_metrics_guidance", {"resource_type": "pod"}, "pod_cpu_reserved_capacity"),
        environment=AWS,
    ),
}
