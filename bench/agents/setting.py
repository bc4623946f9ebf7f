"""What agents work on: recorded data, a folder with files and state, and the configuration of one gateway."""

import contextlib
import json
import os
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers import ROOT
from tests.interop.install import program

OWN = ("github", "registry", "logs", "feeds", "mail")
"""Servers of the bench, that answer with recorded data."""
REAL = ("filesystem", "memory", "sqlite")
"""Servers that strangers published, with state of their own."""
LISTED = (
    *("airtable", "atlassian", "aws-cloudwatch", "aws-dynamodb", "aws-eks", "aws-iam", "aws-postgres", "blender"),
    *("chrome-devtools", "context7", "digitalocean", "duckduckgo", "excel", "figma", "firecrawl", "google-maps"),
    *("jenkins", "k8s", "mongodb", "n8n", "netlify", "notion", "obsidian", "playwright", "slack", "time", "todoist"),
    *("twilio", "word", "yahoo-finance"),
)
"""Published servers that only list their tools, so that something has to be found."""
DOWN = "inventory"
"""A server that ends as soon as it is started."""

FIRST_OPERATIONS = (
    *("github.list_issues", "registry.get_npm_package", "logs.read_log", "feeds.list_tickets", "mail.send_reminders"),
    *("files.read_text_file", "memory.read_graph", "sqlite.read_query", "yahoo-finance.get_stock_info"),
)
"""An operation of each server that is called, and of the last that is only listed."""


@dataclass(frozen=True)
class Setting:
    """Where the data lies, and the folder that servers write into."""

    corpus: Path
    folder: Path

    @property
    def files(self) -> Path:
        """The folder that the file server may use."""
        return self.folder / "files"

    @property
    def outbox(self) -> Path:
        return self.folder / "outbox.jsonl"

    @property
    def database(self) -> Path:
        return self.folder / "agents.db"

    @property
    def graph(self) -> Path:
        return self.folder / "memory.jsonl"

    @property
    def states(self) -> Path:
        """The folder with how often each source that changes was asked."""
        return self.folder / "states"

    def reset(self) -> None:
        """Make everything as it was before the first task."""
        for folder in (self.files, self.states):
            folder.mkdir(exist_ok=True)
        for file in (self.outbox, self.graph, *self.states.iterdir(), *self.files.iterdir()):
            file.unlink(missing_ok=True)
        (self.files / "service.toml").write_text(self.service_file)
        (self.files / "README.md").write_text(self.readme)
        (self.files / "ssh.log").write_text((self.corpus / "results" / "logs" / "OpenSSH.log").read_text())
        with contextlib.closing(sqlite3.connect(self.database)) as connection:
            for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                connection.execute(f'DROP TABLE "{table}"')
            connection.commit()

    @property
    def service_file(self) -> str:
        """A file of settings with as many lines as those of real services."""
        sections = []
        for place, name in enumerate(("web", "worker", "mailer", "search", "billing", "reports")):
            keys = [f"port = {8100 + place}", f"timeout_seconds = {5 + 3 * place}", f"replicas = {2 + place % 3}"]
            keys += [f'log_level = "{["info", "warning", "debug"][place % 3]}"', f"retries = {place}", "tls = true"]
            sections.append("\n".join([f"[services.{name}]", *keys]))
        return "\n\n".join(sections) + "\n"

    @property
    def readme(self) -> str:
        """A text of some hundred tokens, which is read as a whole."""
        text: str = self.results("pypi_httpx.json")["info"]["description"]
        return text[text.index("## Features") :]

    def results(self, *path: str) -> Any:
        return json.loads(self.corpus.joinpath("results", *path).read_text())

    def log(self, name: str) -> list[str]:
        return (self.corpus / "results" / "logs" / f"{name}.log").read_text().splitlines()

    def evolving(self, name: str) -> list[Any]:
        """The states of a source that changes, in the order in which it answers with them."""
        lines = (self.corpus / "evolving" / f"{name}.jsonl").read_text().splitlines()
        return [json.loads(line)["data"] for line in lines]

    def seen(self, name: str, ago: int = 0) -> Any:
        """The state of a source that changes with which it answered last, or so many calls before."""
        states = self.evolving(name)
        return states[(int((self.states / name).read_text()) - 1 - ago) % len(states)]

    def write_configuration(self, preview_above: int | None) -> Path:
        """Write the gateway's configuration, with its defaults but for `preview_above` where that is given."""
        own = "bench.agents.servers."
        entries: dict[str, list[str]] = {
            name: [sys.executable, "-m", own + name, str(self.corpus)] for name in ("github", "registry", "logs")
        }
        entries["feeds"] = [sys.executable, "-m", f"{own}feeds", str(self.corpus), str(self.states)]
        entries["mail"] = [sys.executable, "-m", f"{own}mail", str(self.outbox)]
        entries["files"] = [*program("filesystem"), str(self.files)]
        entries["memory"] = program("memory")
        entries["sqlite"] = [*program("sqlite"), "--db-path", str(self.database)]
        entries[DOWN] = [sys.executable, "-c", "raise SystemExit('The database cannot be reached.')"]
        for name in LISTED:
            file = self.corpus / "mcp_tools" / f"{name}.json"
            entries[name] = [sys.executable, "-m", f"{own}listed", str(file)]
        lines = [] if preview_above is None else ["[results]", "max_tokens = 20000", f"preview_above = {preview_above}"]
        for name, words in entries.items():
            lines += [f"[servers.{name}]", f"command = {json.dumps(words[0])}", f"args = {json.dumps(words[1:])}"]
            lines += [f"cwd = {json.dumps(str(ROOT.resolve()))}"]
        lines += ["[servers.memory.env]", f"MEMORY_FILE_PATH = {json.dumps(str(self.graph))}"]
        path = self.folder / "gateway.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    @property
    def environment(self) -> dict[str, str]:
        """The gateway's own folders are new, too."""
        homes = {f"XDG_{purpose}_HOME": str(self.folder / purpose) for purpose in ("CONFIG", "CACHE", "STATE")}
        return {**os.environ, **homes}
