"""The keyring of the user who runs the program: logins, and the secrets that configurations name."""

from deltamcp.errors import ConfigurationError

_SECRETS = "delta-mcp secrets"
"""The service under which the keyring has what `delta-mcp secret set` puts there."""


def ask_keyring(function: str, *arguments: str) -> object:
    """Calls a function of the package `keyring`; returns None if it is not installed, or its backend fails."""
    try:
        import keyring  # 100 ms to import

        return getattr(keyring, function)(*arguments)
    except Exception:  # backends raise what they like; none of it says more than that there is no keyring
        return None


def load_secret(name: str) -> str | None:
    """Returns a secret of the user; None if the keyring does not have it, or there is no keyring."""
    found = ask_keyring("get_password", _SECRETS, name)
    return found if isinstance(found, str) else None


def save_secret(name: str, secret: str) -> None:
    """
    Raises:
        ConfigurationError: there is no keyring that keeps it.
    """
    ask_keyring("set_password", _SECRETS, name, secret)
    if load_secret(name) != secret:  # a keyring may be switched off, locked, or too small
        raise ConfigurationError(
            "There is no keyring here that keeps secrets: pip install 'delta-mcp[keyring]', unlock yours, or set an "
            "environment variable and write ${NAME} in the configuration."
        )


def delete_secret(name: str) -> bool:
    """Removes a secret; returns whether there was one."""
    was_there = load_secret(name) is not None
    ask_keyring("delete_password", _SECRETS, name)
    return was_there
