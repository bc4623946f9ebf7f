"""Converts the server entries of all hosts' formats to one shape."""

from typing import Any

from deltamcp.errors import ConfigurationError
from deltamcp.values import JSON


def normalize_entry(raw: Any) -> dict[str, Any]:
    """Returns `command`, `args`, `env` and `cwd`, or `url`, `headers` and `type`, of an entry in any host's format.

    Raises:
        ConfigurationError: this is not an entry; the text is the end of a sentence.
    """
    if not isinstance(raw, dict):
        raise ConfigurationError("it is not an object")
    command: Any = raw.get("command")
    args = raw.get("args")
    if isinstance(command, dict):  # Zed's older form
        raw = {**raw, **command}
        command, args = command.get("path"), command.get("args")
    elif isinstance(command, list):  # OpenCode's
        command, args = (command[0] if command else None), [*command[1:], *(args or ())]
    if command:
        if "envFile" in raw:
            raise ConfigurationError("it reads variables from an envFile, which only its host does")
        variables = _check_list(raw.get("env_vars"), "env_vars")
        inherited = {name: f"${{{name}}}" for name in variables if isinstance(name, str)}
        entry: dict[str, Any] = {
            "command": to_text(command, "command"),
            "args": [to_text(word, "args") for word in _check_list(args, "args")],
            "env": inherited | _text_map(raw, "environment") | _text_map(raw, "env"),
        }
        return entry | ({"cwd": to_text(raw["cwd"], "cwd")} if raw.get("cwd") else {})
    url = next((raw[key] for key in ("url", "httpUrl", "serverUrl") if raw.get(key)), None)
    if url is None:
        raise ConfigurationError("it has neither a command nor a url")
    headers = _text_map(raw, "headers") | _text_map(raw, "http_headers")
    headers |= {name: f"${{{variable}}}" for name, variable in _text_map(raw, "env_http_headers").items()}
    if raw.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{to_text(raw['bearer_token_env_var'], 'bearer_token_env_var')}}}"
    entry = {"url": to_text(url, "url"), "headers": headers}
    # The client detects the transports that need not be named.
    kind = raw.get("type", raw.get("transport"))
    return {**entry, "type": kind} if kind in ("sse", "mcp-lite") else entry


def _check_list(value: JSON, key: str) -> list[JSON]:
    if value is not None and not isinstance(value, list):
        raise ConfigurationError(f"its {key} are not a list")
    return value or []


def _text_map(raw: dict[str, JSON], key: str) -> dict[str, str]:
    value = raw.get(key) or {}
    if not isinstance(value, dict):
        raise ConfigurationError(f"its {key} is not an object")
    return {to_text(name, key): to_text(text, key) for name, text in value.items() if text is not None}


def to_text(value: JSON, key: str) -> str:
    """Converts a scalar to text, without lone surrogates, which JSON can hold but which cannot be printed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise ConfigurationError(f"its {key} has something that is not a text")
    return str(value).encode(errors="replace").decode()
