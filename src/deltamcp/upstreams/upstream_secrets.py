"""What in an upstream's entry is secret. Pure: does no I/O."""

from collections.abc import Iterator, Mapping
from typing import Any

from deltamcp.runtime.secrets import address_secrets, named_secrets


def entry_secrets(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yields the secrets in an entry of an `mcpServers` file: what names, addresses and options show to be one."""
    for name in ("env", "headers"):
        texts = entry.get(name)
        if isinstance(texts, Mapping):
            yield from named_secrets({str(key): str(value) for key, value in texts.items()})
    args = entry.get("args")
    words = [str(word) for word in args] if isinstance(args, list) else []
    for at, word in enumerate(words):
        if word.startswith("-"):
            option, mark, value = word.partition("=")
            yield from named_secrets({option: value if mark else " ".join(words[at + 1 : at + 2])})
    for text in (entry.get("url"), *words):
        if isinstance(text, str) and "://" in text:
            yield from address_secrets(text)
