"""Names at the gateway: of upstreams that nobody named, of tools and prompts, and the ids of operations.

Names follow the order of the configuration, not of arrival, and suffixes come from what they stand for, so that the
same servers have the same names in every process. Pure: does no I/O.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from deltamcp.catalog.items.operation import is_id_character, is_id_segment
from deltamcp.gateway.trust.imitation import latin
from deltamcp.wire.canonical import sha256_digest

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.\-]")
_MAX_NAME_CHARS = 128
"""Both MCP 2025-11-25, "Tool Names"."""
_MAX_MADE_CHARS = 64
"""The longest name that the gateway makes itself: the APIs of models take no longer ones."""
_MAX_PATH_CHARS = 256
"""The longest path of an operation below its upstream; the tree has a level for each part of it."""
_SUFFIX_CHARS = 6
_WORD = re.compile(r"[^\s_.\-]*[^\x00-\x7f][^\s_.\-]*")
"""A word with a letter that is not ASCII."""


class NamedItem(NamedTuple):
    """An item of an upstream by its name."""

    upstream: str
    """The name of the upstream in the configuration."""
    name: str
    """The name that the item is to have, without a prefix."""


def id_segment(text: str, otherwise: str = "x") -> str:
    """Returns a text as a part of an id, or `otherwise` if nothing of it can be; `is_id_segment` says what can.

    A word with Latin letters keeps no others that look like them.
    """
    joined = _join_words(unicodedata.normalize("NFKC", text))
    if not joined.isascii():
        joined = _join_words(_WORD.sub(lambda word: _without_disguise(word[0]), joined))
    return joined or otherwise


def _join_words(text: str) -> str:
    """Returns what of a text can be a part of an id, with hyphens in place of the rest."""
    words = "".join(char if is_id_character(char) else " " for char in text)
    start = next((place for place, char in enumerate(words) if char.isalnum()), len(words))
    return re.sub(" +", "-", words[start:]).strip("-_")[:_MAX_MADE_CHARS]


def ascii_segment(text: str) -> str:
    """Returns a text as a part of a name: as of an id, with ASCII letters alone."""
    return id_segment(_without_accents(id_segment(text)).encode("ascii", "replace").decode())


def _without_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def _without_disguise(word: str) -> str:
    """Returns a word without letters of other scripts if it has Latin ones and reads as if it had no others."""
    foreign = {char for char in word if char.isalpha() and not unicodedata.name(char, "").startswith("LATIN ")}
    is_disguised = foreign and latin(word).isascii() and any(char.isalpha() and char not in foreign for char in word)
    return "".join(" " if char in foreign else char for char in word) if is_disguised else word


def distinct_segments(
    texts: Sequence[str], reserved: Collection[str] = (), segment: Callable[[str], str] = id_segment
) -> list[str]:
    """Returns different parts of ids, or with `segment=ascii_segment` of names, for different texts.

    A text that can be such a part is that part. Of others that become equal each gets a suffix of its own.
    """
    exact = {text for text in texts if _is_made(text, segment)} - {*reserved}
    sharing = Counter(segment(text) for text in {*texts} - exact)
    used = exact | {*reserved}
    segments: dict[str, str] = {text: text for text in exact}
    for text in dict.fromkeys(texts):
        if text not in segments:
            cleaned = segment(text)
            is_free = sharing[cleaned] == 1 and cleaned not in used
            segments[text] = cleaned if is_free else _with_suffix(cleaned, text, "-", used.__contains__)
            used.add(segments[text])
    return [segments[text] for text in texts]


def _is_made(text: str, segment: Callable[[str], str]) -> bool:
    """Returns whether a text is a part of an id, or of a name, as `segment` makes it."""
    return is_id_segment(text) and (text.isascii() or segment(text) == text)


def distinct_paths(names: Sequence[str], paths: Sequence[str]) -> list[str]:
    """Returns different ends of ids for operations of one upstream.

    That is the path which the operation has there, if it is one of the tree and the first of its kind; else the name.
    """
    first: dict[str, int] = {}
    for place, path in enumerate(paths):
        if path and len(path) <= _MAX_PATH_CHARS and all(_is_made(part, id_segment) for part in path.split(".")):
            first.setdefault(path, place)
    others = [place for place, path in enumerate(paths) if first.get(path) != place]
    segments = dict(zip(others, distinct_segments([names[place] for place in others], first), strict=True))
    return [segments.get(place, path) for place, path in enumerate(paths)]


def distinct_names(
    items: Sequence[NamedItem], prefixes: Mapping[str, str], has_prefix: bool, reserved: Collection[str] = ()
) -> list[str]:
    """Returns different names for items of several upstreams; `prefixes` are the texts for the upstreams.

    Of two items with the same name the first keeps it, and one whose name is as it was before one whose name had to be
    changed. The other one's name begins with that of its upstream, as does that of an item whose name is reserved.
    """
    used = {*reserved}
    names: dict[int, str] = {}
    wanted = [f"{prefixes[item.upstream]}_{item.name}" if has_prefix else item.name for item in items]
    max_chars = _MAX_MADE_CHARS if has_prefix else _MAX_NAME_CHARS
    fitting = [_fit(name, item, max_chars) for name, item in zip(wanted, items, strict=True)]
    for place in sorted(range(len(items)), key=lambda place: wanted[place] != fitting[place]):
        name, item = fitting[place], items[place]
        if name in used:
            name = _fit(f"{prefixes[item.upstream]}_{item.name}", item, _MAX_MADE_CHARS)
        if name in used:
            name = _with_suffix(name, f"{item.upstream}\0{item.name}", "_", used.__contains__)
        used.add(name)
        names[place] = name
    return [names[place] for place in range(len(items))]


def _fit(name: str, item: NamedItem, max_chars: int) -> str:
    """Returns a name that hosts take; if letters had to go it has a suffix that tells it from names like it."""
    cleaned = _FORBIDDEN.sub("_", _without_accents(name))
    if name.isascii() and cleaned.strip("_") and len(cleaned) <= max_chars:
        return cleaned
    return _with_suffix(cleaned.strip("_") or "x", f"{item.upstream}\0{item.name}", "_", lambda _: False)


def _with_suffix(name: str, source: str, separator: str, is_used: Callable[[str], bool]) -> str:
    digest = sha256_digest(source.encode(errors="surrogatepass")).rpartition(":")[2]
    for length in range(_SUFFIX_CHARS, _MAX_MADE_CHARS // 2):
        made = f"{name[: _MAX_MADE_CHARS - length - 1]}{separator}{digest[:length]}"
        if not is_used(made):
            return made
    raise AssertionError("a digest tells all texts apart")


_RUNNERS = frozenset(
    {"npx", "bunx", "uvx", "pnpm", "yarn", "npm", "bun", "deno", "uv", "pipx", "docker", "podman", "delta-mcp"}
)
"""Programs whose argument names what they run."""
_INTERPRETERS = frozenset({"node", "python", "tsx", "ts-node", "ruby", "java", "sh", "bash", "env", "cmd"})
_SUBCOMMANDS = frozenset({"run", "dlx", "exec", "x", "tool", "container", "deltamcp", "serve"})
_VALUED_OPTIONS = frozenset(
    {"-e", "--env", "-v", "--volume", "--mount", "--name", "--network", "-p", "--publish", "--env-file", "-w"}
    | {"--from", "--with", "--directory", "--project", "--python", "-u", "--user", "--package"}
)
"""Options of runners whose value is a word of its own."""
_COMMON_FILES = frozenset({"index", "main", "__main__", "server", "cli", "app", "start", "mcp"})
"""Files that are called by what they are for; their folder has the name."""
_COMMON_FOLDERS = frozenset({"dist", "build", "src", "out", "bin", "lib"})
_FILE_SUFFIX = re.compile(r"\.(py|js|mjs|cjs|ts|mts|rb|jar|sh|exe|cmd|bat)$", re.IGNORECASE)
_COMMON_DOCUMENTS = frozenset({"openapi", "swagger", "api", "spec", "schema", "docs", "api-docs"})
"""Files of documents that are called by what they are."""
_DOCUMENT_SUFFIX = re.compile(r"\.(json|ya?ml)$", re.IGNORECASE)
_COMMON_WORDS = re.compile(r"^(mcp-server|server|mcp)[-_]|[-_](mcp-server|server|mcp)$", re.IGNORECASE)
_COMMON_LABELS = frozenset({"mcp", "api", "www", "app", "server", "co", "com"})


def name_command(words: Sequence[str]) -> str:
    """Returns a name for a server by its command line: that of the package, the image or the file that it runs."""
    program = _FILE_SUFFIX.sub("", _last_part(words[0]))
    runner = re.sub(r"[\d.]+$", "", program)
    if runner in _RUNNERS | _INTERPRETERS:
        return _shorten(_first_argument(words[1:]) or program)
    return _shorten(words[0])


def name_address(url: str) -> str:
    """Returns a name for a server by its address: what tells its host from others."""
    parts = urlsplit(url)
    host = parts.hostname or "server"
    if ":" in host or host.replace(".", "").isdigit() or host == "localhost":
        return _clean(f"{host}-{parts.port}" if parts.port else host)
    labels = host.split(".")
    telling = [label for label in labels[:-1] if label not in _COMMON_LABELS]
    return _clean((telling or labels)[-1])


def name_document(path: str) -> str:
    """Returns a name for an API by the file of its document, or by its folder where the file says nothing."""
    *folders, file = PurePosixPath(path.replace("\\", "/")).parts
    name = _DOCUMENT_SUFFIX.sub("", file)
    while name.lower() in _COMMON_DOCUMENTS and folders and folders[-1] != "/":
        name = folders.pop()
    return _clean(re.sub(r"\.(openapi|swagger)$", "", name, flags=re.IGNORECASE))


def _first_argument(words: Sequence[str]) -> str:
    """Returns the first word that is neither an option, nor its value, nor a subcommand of the runner."""
    skips_next = False
    for word in words:
        if skips_next or word in _SUBCOMMANDS or word.startswith("-"):
            skips_next = word in _VALUED_OPTIONS and not skips_next
            continue
        return word
    return ""


def _shorten(word: str) -> str:
    """Returns what tells a package, an image or a path from others."""
    without_version = re.sub(r"(?<=.)@[^/@]*$|:[\w.-]*$|(==|>=|~=).*$|\[.*\]$", "", word)
    parts = [part for part in PurePosixPath(without_version.replace("\\", "/")).parts if part not in ("/", ".", "..")]
    name = _FILE_SUFFIX.sub("", parts[-1]) if parts else word
    while len(parts) > 1 and (name.lower() in _COMMON_FILES or name.lower() in _COMMON_FOLDERS):
        parts.pop()
        name = parts[-1].removeprefix("@")
    shorter = name
    while (match := _COMMON_WORDS.search(shorter)) and len(shorter) > len(match[0]):
        shorter = shorter[: match.start()] + shorter[match.end() :]
    return _clean(shorter)


def _clean(name: str) -> str:
    return id_segment(name, "server")


def _last_part(path: str) -> str:
    return PurePosixPath(path.replace("\\", "/")).name
