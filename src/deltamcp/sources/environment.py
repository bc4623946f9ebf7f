"""`${NAME}` in a file: what it stands for is the program's to know, and is never told."""

import re
from collections.abc import Iterable, Mapping

from deltamcp.errors import ConfigurationError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def fill_variables(text: str, environment: Mapping[str, str]) -> str:
    """The text with its variables filled in; `${NAME:-other}` is `other` where the variable is not set.

    Raises:
        ConfigurationError: one is not set.
    """

    def value(match: re.Match[str]) -> str:
        name, otherwise = match.groups()
        found = environment.get(name, otherwise)
        if found is None:
            raise ConfigurationError(f"The environment variable {name} is not set, and the operations file uses it.")
        return found

    return _VARIABLE.sub(value, text)


def variable_values(texts: Iterable[str], environment: Mapping[str, str]) -> set[str]:
    """What the variables in some texts stand for: not to be repeated to anyone."""
    names = {name for text in texts for name, _ in _VARIABLE.findall(text)}
    return {environment[name] for name in names if environment.get(name)}
