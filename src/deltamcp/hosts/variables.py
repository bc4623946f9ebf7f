"""Expands the variables in hosts' files, which name the environment, the project and the user in several syntaxes."""

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from deltamcp.hosts.hosts import Machine
from deltamcp.runtime.secrets import load_secret

_KEYRING, _INPUT = "keyring:", "input:"
"""What stands before the name of a secret in the user's keyring, and of what VS Code asks its user for."""
# `${NAME}` in all hosts, `{env:NAME}` in OpenCode, `$NAME` as a whole value in Gemini CLI.
_VARIABLE = re.compile(r"\$\{([^{}]*)\}|\{env:([^{}]*)\}|^\$([A-Za-z_]\w*)$")


class Reference(NamedTuple):
    """A variable in a text of an entry."""

    name: str
    text: str
    """The reference as the host writes it."""


def find_references(value: Any) -> list[Reference]:
    """Returns the variables that all texts of a value refer to."""
    if isinstance(value, dict):
        return [reference for item in value.values() for reference in find_references(item)]
    if isinstance(value, list):
        return [reference for item in value for reference in find_references(item)]
    return [Reference(_read_name(match)[0], match[0]) for match in _VARIABLE.finditer(value)]


def _read_name(match: re.Match[str]) -> tuple[str, str | None]:
    """Returns the name of a variable, and its default if the reference has one."""
    name, is_default, default = (match[1] or match[2] or match[3] or "").partition(":-")
    return name.removeprefix("env:"), default if is_default else None


class VariableExpander:
    """Expands variables, and collects the names of those that have no value."""

    def __init__(self, machine: Machine, workspace: Path) -> None:
        self.machine = machine
        self.workspace = workspace
        self._missing: dict[str, None] = {}
        self.filled: dict[str, str] = {}
        """The values of variables and secrets that were filled in, by their names."""
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
        secrets = [name.removeprefix(_KEYRING) for name in self._missing if name.startswith(_KEYRING)]
        inputs = [name.removeprefix(_INPUT) for name in self._missing if name.startswith(_INPUT)]
        variables = [name for name in self._missing if not name.startswith((_INPUT, _KEYRING))]
        needed = []
        if secrets:
            store = f"`delta-mcp secret set {secrets[0]}` puts it there"
            needed.append(f"the secret {', '.join(secrets)}, which your keyring does not have ({store})")
        if inputs:
            store = f"`delta-mcp secret set {inputs[0]}` stores it for us"
            needed.append(f"the input {', '.join(inputs)}, which its host asks for ({store})")
        if variables:
            needed.append(f"the variable {', '.join(variables)}, which is not set")
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
        name, default = _read_name(match)
        if name in self._builtin_values:
            return self._builtin_values[name]
        value = self._find(name)
        if value is not None:
            self.filled[name] = value
            return value
        if default is None:
            self._missing[name[:100]] = None
            return match[0]
        return default

    def _find(self, name: str) -> str | None:
        """Returns the value of a variable or a secret; None if there is none."""
        for prefix in (_KEYRING, _INPUT):
            if name.startswith(prefix):
                return load_secret(name.removeprefix(prefix))
        return self.machine.environment.get(name)
