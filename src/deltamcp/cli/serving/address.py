"""Addresses to listen at, as an operator writes them."""

from deltamcp.errors import ConfigurationError


def parse_address(option: str, text: str) -> tuple[str, int]:
    """Reads HOST:PORT; an empty host is 127.0.0.1.

    Raises:
        ConfigurationError: the text, which is the value of `option`, is no address.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"{option} takes HOST:PORT, such as 127.0.0.1:8000, not {text!r}.")
    return host.strip("[]") or "127.0.0.1", int(port)
