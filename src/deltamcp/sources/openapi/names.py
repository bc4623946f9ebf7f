"""Names of operations: short, unique, the same in every process and, once locked, in every version of a document."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from deltamcp.wire.canonical_json import sha256_digest

MAX_NAME_CHARS = 64
"""The longest name that the APIs of models take."""
_SUFFIX_CHARS = 6
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_VERSION = re.compile(r"v?\d+(\.\d+)*([a-z]+\d+)?", re.IGNORECASE)
_PREFIX_SEGMENTS = frozenset({"api", "rest"})
_READS_ALL = {"get": "list"}


class Unnamed(Struct, frozen=True):
    """What the name of an operation is made from."""

    method: str
    """In upper case."""
    path: str
    operation_id: str | None
    category: str
    """A text such as a tag; empty if the operation has none."""

    @property
    def key(self) -> str:
        """What identifies the operation in its document."""
        return f"{self.method} {self.path}"


class LockedName(Struct, frozen=True):
    """The name and the id that an operation keeps."""

    name: str
    id: str
    """Begins with the category."""
    operation_id: str | None = None


def choose_names(operations: Sequence[Unnamed], locked: Mapping[str, LockedName]) -> list[LockedName]:
    """Returns names for operations; `locked` has those of earlier documents by `Unnamed.key`.

    An operation keeps its name if its method and path, or else its `operationId`, are as they were. The name of an
    operation that is gone goes to no other one.
    """
    kept = _kept_names(operations, locked)
    used_names = {one.name for one in locked.values()}
    used_ids = {one.id for one in locked.values()}
    new = [place for place in range(len(operations)) if place not in kept]
    added = [operations[place] for place in new]
    short = _short_names(added)
    names = _distinct([one.key for one in added], _wanted_names(added, short), used_names)
    chosen = dict(kept)
    ids = _distinct([one.key for one in added], _wanted_ids(added, short, names), used_ids)
    for place, name, id_ in zip(new, names, ids, strict=True):
        chosen[place] = LockedName(name, id_, operations[place].operation_id)
    return [chosen[place] for place in range(len(operations))]


def _kept_names(operations: Sequence[Unnamed], locked: Mapping[str, LockedName]) -> dict[int, LockedName]:
    kept = {place: locked[one.key] for place, one in enumerate(operations) if one.key in locked}
    here = {one.key for one in operations}
    moved = {one.operation_id: one for key, one in locked.items() if one.operation_id and key not in here}
    for place, one in enumerate(operations):
        if place not in kept and one.operation_id in moved:
            kept[place] = moved.pop(one.operation_id)
    return kept


def _short_names(operations: Sequence[Unnamed]) -> list[str]:
    """Returns the name that each operation would have by itself."""
    ids = Counter(one.operation_id for one in operations)
    return [
        _short_id(one) if one.operation_id and ids[one.operation_id] == 1 else _path_name(one) for one in operations
    ]


def _wanted_names(operations: Sequence[Unnamed], short: Sequence[str]) -> list[str]:
    """Returns the short names, or longer ones where several operations have the same."""
    ids = Counter(one.operation_id for one in operations)
    counts = Counter(short)
    # A short form that two have says less than what it was made from.
    return [
        name if counts[name] == 1 or not one.operation_id or ids[one.operation_id] > 1 else segment(one.operation_id)
        for one, name in zip(operations, short, strict=True)
    ]


def _wanted_ids(operations: Sequence[Unnamed], short: Sequence[str], names: Sequence[str]) -> list[str]:
    """Returns the category with the short name, which is often short enough there, or else with the name."""
    ids = [_id(one, name) for one, name in zip(operations, short, strict=True)]
    counts = Counter(ids)
    return [id_ if counts[id_] == 1 else _id(one, name) for one, id_, name in zip(operations, ids, names, strict=True)]


def _short_id(operation: Unnamed) -> str:
    """Returns an `operationId` without the path and the method that FastAPI and others write behind it."""
    made = segment(operation.operation_id or "")
    end = re.sub(r"\W", "_", operation.path) + f"_{operation.method.lower()}"
    shortened = made.removesuffix(end)
    return shortened if len(shortened) > 1 and shortened != made else made or _path_name(operation)


def _path_name(operation: Unnamed) -> str:
    """Returns a name from method and path: `GET /users/{id}/posts` is `list_users_posts`."""
    method, steps = operation.method.lower(), [step for step in operation.path.split("?")[0].split("/") if step]
    while len(steps) > 1 and (steps[0].lower() in _PREFIX_SEGMENTS or _VERSION.fullmatch(steps[0])):
        steps = steps[1:]
    words = [segment(step) for step in steps if not _PLACEHOLDER.fullmatch(step)]
    last = _PLACEHOLDER.fullmatch(steps[-1]) if steps else None
    if last is not None:
        words.append(f"by_{segment(last[1])}")
    elif steps and any(_PLACEHOLDER.search(step) for step in steps):
        method = _READS_ALL.get(method, method)
    return _fit("_".join([method, *filter(None, words)]), operation.key)


def segment(text: str) -> str:
    """Returns what of a text can be a part of a name or an id, with `_` in place of the rest; empty if nothing can."""
    return _OTHER.sub("_", text).strip("_-")


def _id(operation: Unnamed, name: str) -> str:
    """Returns the dotted path of an operation: its category, and its name without the category before it."""
    category = segment(operation.category)[:MAX_NAME_CHARS].strip("_-")
    if not category:
        return name
    action = name
    for prefix in (category, category.removesuffix("s")):
        rest = name[len(prefix) :]
        if name.lower().startswith(prefix.lower()) and rest[:1] in ("_", "-") and rest.strip("_-"):
            action = rest.strip("_-")
            break
    return f"{category}.{action}"


def _distinct(keys: Sequence[str], wanted: Sequence[str], taken: set[str]) -> list[str]:
    """Returns different texts. Of equal ones each has a suffix of its own, so that none depends on the order."""
    fitted = [_fit(text, key) for text, key in zip(wanted, keys, strict=True)]
    counts = Counter(fitted)
    used = {*taken, *(text for text in fitted if counts[text] == 1)}
    made: list[str] = []
    for text, key in zip(fitted, keys, strict=True):
        if counts[text] > 1 or text in taken:
            text = _with_suffix(text, key, used)
            used.add(text)
        made.append(text)
    return made


def _fit(text: str, key: str) -> str:
    head, separator, last = text.rpartition(".")
    if len(last) > MAX_NAME_CHARS:
        last = _with_suffix(last, key, set())
    return f"{head}{separator}{last or 'x'}"


def _with_suffix(text: str, key: str, used: set[str]) -> str:
    head, separator, last = text.rpartition(".")
    digest = sha256_digest(key.encode(errors="surrogatepass")).rpartition(":")[2]
    for length in range(_SUFFIX_CHARS, MAX_NAME_CHARS // 2):
        made = f"{head}{separator}{last[: MAX_NAME_CHARS - length - 1]}_{digest[:length]}"
        if made not in used:
            return made
    raise AssertionError("a digest tells all operations apart")
