"""Expands the variables in hosts' files, which name the environment, the project and the user in several syntaxes."""

import os
import re
from pathlib import Path
from typing import Any

from deltamcp.client.configs.hosts import Machine

# `${NAME}` in all hosts, `{env:NAME}` in OpenCode, `$NAME` as a whole value in Gemini CLI.
_VARIABLE = re.compile(r"\$\{([^{}]*)\}|\{env:([^{}]*)\}|^\$([A-Za-z_]\w*)$")


class VariableExpander:
    """Expands variables, and collects the names of those that have no value."""

    def __init__(self, machine: Machine, workspace: Path) -> None:
        self.machine = machine
        self.workspace = workspace
        self._missing: dict[str, None] = {}
        self._builtin_values = {
            "workspaceFolder": str(workspace),
            "workspaceFolderBasename": workspace.name,
            "userHome": str(machine.home),
            "cwd": str(machine.cwd),
            "pathSeparator": os.sep,
            "/": os.sep,
        }

    @property
    def missing_text(self) -> str | None:
        """Says which variables have no value, as the end of a sentence; None if all have one."""
        if not self._missing:
            return None
        inputs = [name.removeprefix("input:") for name in self._missing if name.startswith("input:")]
        variables = [name for name in self._missing if not name.startswith("input:")]
        needed = [f"the input {', '.join(inputs)}, which only its host can ask for"] if inputs else []
        needed += [f"the variable {', '.join(variables)}, which is not set"] if variables else []
        return f"it needs {' and '.join(needed)}"

    def expand(self, value: Any) -> Any:
        """Returns the value with the variables in all its texts expanded."""
        if isinstance(value, dict):
            return {name: self.expand(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.expand(item) for item in value]
        if value == "~" or value.startswith(("~/", "~\\")):
            value = f"{self.machine.home}{value[1:]}"
        return _VARIABLE.sub(self._expand_match, value)

    def _expand_match(self, match: re.Match[str]) -> str:
        name, is_default, default = (match[1] or match[2] or match[3] or "").partition(":-")
        name = name.removeprefix("env:")
        value = self._builtin_values.get(name) or self.machine.environment.get(name)
        if value is None and not is_default:
            self._missing[name[:100]] = None
            return match[0]
        return default if value is None else value
