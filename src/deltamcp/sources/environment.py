"""Environment variables in an operations file, written `${NAME}`; their values must never reach a client or a log."""

import re
from collections.abc import Iterable, Mapping

from deltamcp.errors import ConfigurationError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def fill_variables(text: str, environment: Mapping[str, str]) -> str:
    """Fills in the variables of a text; `${NAME:-other}` becomes `other` where the variable is not set.

    Raises:
        ConfigurationError: a variable is not set and has no default.
    """

    def value(match: re.Match[str]) -> str:
        name, default = match.groups()
        filled = environment.get(name, default)
        if filled is None:
            raise ConfigurationError(f"The environment variable {name} is not set, and the operations file uses it.")
        return filled

    return _VARIABLE.sub(value, text)


def variable_values(texts: Iterable[str], environment: Mapping[str, str]) -> set[str]:
    """Returns the values of the variables in some texts."""
    names = {name for text in texts for name, _ in _VARIABLE.findall(text)} - {"PYTHON"}
    return {environment[name] for name in names if environment.get(name)}
