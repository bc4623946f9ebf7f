"""Looks for costly requests: every field of every endpoint in every costly shape, then the worst of them, changed.

The requests that cost others most for each byte are changed at random (size, shape, encoding, a second field, a batch,
more connections), and kept again if that makes them worse, until the time is up.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cbor2

from bench.hostile import protobuf
from bench.hostile.endpoints import Endpoint, FieldPath
from bench.hostile.rule import MAX_GROWTH_MB, MAX_WAIT_MS
from bench.hostile.shapes import SHAPES, protobuf_value

SIZES = (10_000, 100_000, 1_000_000)
LARGEST = 4_000_000
ENCODINGS = ("json", "compact-json", "cbor")
BATCHES = (1, 4, 16)
"""How many times a request of MCP-lite is in its body."""
CONNECTIONS = (1, 8, 50)
"""On how many connections a request is sent at once."""
_LEAST_BYTES = 10_000
"""Smaller requests count as of this size: what any request costs must not decide the search."""
_KEPT = 24
_REPORTED = 10
_ABOUT = 0.8
_SWEEP_SHARE = 0.6
"""The share of the time for requests with one field at one size; the rest is for changing the worst of them."""
_HOLE = "@@@"


class FilledField(NamedTuple):
    """A field of a request and what is put there."""

    path: FieldPath
    shape: str
    size: int


class Candidate(NamedTuple):
    """A request to try."""

    endpoint: int
    """The place of its endpoint in the list."""
    fields: tuple[FilledField, ...]
    encoding: str = "json"
    batch: int = 1
    connections: int = 1


class Cost(NamedTuple):
    """What a request cost others."""

    waited_ms: float
    grown_mb: float
    bytes: int
    answered: str
    stored_mb: float = 0.0
    """The stored data that the request may have made, which may stay."""

    @property
    def severity(self) -> float:
        """1 is what the rule allows."""
        return max(self.waited_ms / MAX_WAIT_MS, self.grown_mb / (MAX_GROWTH_MB + self.stored_mb))

    @property
    def per_byte(self) -> float:
        return self.severity / max(self.bytes, _LEAST_BYTES)


class Found(NamedTuple):
    candidate: Candidate
    cost: Cost


Try = Callable[[Candidate], Cost]


def every_candidate(endpoints: Sequence[Endpoint], size: int) -> list[Candidate]:
    """Every field of every endpoint in every shape, at one size."""
    return [
        Candidate(place, (FilledField(path, shape, size),))
        for place, endpoint in enumerate(endpoints)
        for path in endpoint.fields
        for shape in SHAPES
    ]


def mutate(candidate: Candidate, endpoints: Sequence[Endpoint], chance: random.Random) -> Candidate:
    """A candidate that differs in one respect."""
    fields = list(candidate.fields)
    place = chance.randrange(len(fields))
    field = fields[place]
    endpoint = endpoints[candidate.endpoint]
    match chance.choice(("size", "size", "shape", "path", "more", "encoding", "batch", "connections")):
        case "size":
            size = int(field.size * chance.choice((0.25, 0.5, 2, 4, 10)))
            fields[place] = field._replace(size=min(LARGEST, max(1_000, size)))
        case "shape":
            fields[place] = field._replace(shape=chance.choice(list(SHAPES)))
        case "path":
            fields[place] = field._replace(path=chance.choice(endpoint.fields))
        case "more" if len(fields) < 3:
            path = chance.choice(endpoint.fields)
            fields.append(FilledField(path, chance.choice(list(SHAPES)), field.size))
        case "batch" if endpoint.is_lite and endpoint.method:
            return _bounded(candidate._replace(batch=chance.choice(BATCHES)))
        case "connections":
            return candidate._replace(connections=chance.choice(CONNECTIONS))
        case _:
            is_mcp = not endpoint.is_lite and not endpoint.is_grpc
            return candidate._replace(encoding=chance.choice(ENCODINGS) if is_mcp else ENCODINGS[0])
    return _bounded(candidate._replace(fields=tuple(fields)))


def _bounded(candidate: Candidate) -> Candidate:
    """The candidate with fields that are together no larger than a message may be."""
    total = sum(one.size for one in candidate.fields) * candidate.batch
    if total <= LARGEST:
        return candidate
    smaller = tuple(one._replace(size=max(1, one.size * LARGEST // total)) for one in candidate.fields)
    return candidate._replace(fields=smaller)


def encode(candidate: Candidate, message: dict[str, Any]) -> bytes:
    """The body of a candidate: a sample message of its endpoint with the fields filled in."""
    filled: dict[str, Any] = json.loads(json.dumps(message))
    holes: list[tuple[str, bytes]] = []
    for number, field in enumerate(candidate.fields):
        hole = f"{_HOLE}{number}"
        _put(filled, field.path, hole)
        holes.append((hole, SHAPES[field.shape](field.size)))
    body = json.dumps(filled, separators=(",", ":")).encode()
    for hole, content in holes:
        body = body.replace(f'"{hole}"'.encode(), content)
    if candidate.batch > 1:
        return b"[" + b",".join([body] * candidate.batch) + b"]"
    if candidate.encoding == "cbor":
        try:
            return cbor2.dumps(json.loads(body))
        except (ValueError, RecursionError):  # not every shape is valid JSON
            return body
    return body


def encode_grpc(candidate: Candidate, message: dict[str, Any]) -> bytes:
    """The same as a message of gRPC."""
    filled: dict[str, Any] = json.loads(json.dumps(message))
    holes: dict[str, bytes] = {}
    for number, field in enumerate(candidate.fields):
        _put(filled, field.path, f"{_HOLE}{number}")
        is_text = field.path == ("name",)
        holes[f"{_HOLE}{number}"] = (
            SHAPES[field.shape](field.size) if is_text else protobuf_value(field.shape, field.size)
        )
    return protobuf.call_request(filled, holes)


def _put(message: dict[str, Any], path: FieldPath, value: str) -> None:
    at = message
    for name in path[:-1]:
        if not isinstance(at.get(name), dict):
            at[name] = {}
        at = at[name]
    at[path[-1]] = value


def search(endpoints: Sequence[Endpoint], try_: Try, left: Callable[[], float], seed: int = 1) -> list[Found]:
    """Tries candidates while there is time; what cost most, the worst first, one of a kind.

    `left` is the share of the time that is left, from 1 to 0.
    """
    chance = random.Random(seed)
    found: dict[Candidate, Cost] = {}
    first = every_candidate(endpoints, SIZES[1])
    chance.shuffle(first)
    for candidate in first:
        if left() <= 1 - _SWEEP_SHARE:
            break
        found[candidate] = try_(candidate)
    for candidate in _worst_per_byte(found, _KEPT):
        for size in (SIZES[0], SIZES[2], LARGEST):
            if left() > 0:
                resized = candidate._replace(fields=(candidate.fields[0]._replace(size=size),))
                found[resized] = try_(resized)
    while left() > 0 and found:
        for candidate in _worst_per_byte(found, _KEPT // 2) + _worst(found, _KEPT // 2):
            changed = mutate(candidate, endpoints, chance)
            if changed not in found and left() > 0:
                found[changed] = try_(changed)
    again: dict[Candidate, Cost] = {}
    for one in top(found, 2 * _REPORTED):
        simple = simplify(Found(one.candidate, _lesser(one.cost, try_(one.candidate))), try_)
        again[simple.candidate] = simple.cost
    return top(again, _REPORTED)


def simplify(found: Found, try_: Try) -> Found:
    """What was found with one of its fields only, if that costs about as much."""
    candidate, cost = found
    if len(candidate.fields) == 1:
        return found
    alone = [candidate._replace(fields=(field,)) for field in candidate.fields]
    worst = max((Found(one, try_(one)) for one in alone), key=lambda one: one.cost.severity)
    return worst if worst.cost.severity >= _ABOUT * cost.severity else found


def _lesser(one: Cost, other: Cost) -> Cost:
    """What a request costs every time, without what else the machine did."""
    return other._replace(waited_ms=min(one.waited_ms, other.waited_ms), grown_mb=min(one.grown_mb, other.grown_mb))


def _worst_per_byte(found: dict[Candidate, Cost], count: int) -> list[Candidate]:
    return sorted(found, key=lambda one: -found[one].per_byte)[:count]


def _worst(found: dict[Candidate, Cost], count: int) -> list[Candidate]:
    return sorted(found, key=lambda one: -found[one].severity)[:count]


def top(found: dict[Candidate, Cost], count: int) -> list[Found]:
    """The worst, one for each shape and encoding of the largest field, in whichever endpoint it is worst."""
    kept: dict[tuple[object, ...], Found] = {}
    for candidate in _worst(found, len(found)):
        largest = max(candidate.fields, key=lambda one: one.size)
        kept.setdefault((largest.shape, candidate.encoding), Found(candidate, found[candidate]))
    return list(kept.values())[:count]


def describe(candidate: Candidate, endpoints: Sequence[Endpoint]) -> str:
    """A candidate in words."""
    endpoint = endpoints[candidate.endpoint]
    parts = [f"{'.'.join(field.path)} = {field.size:,} bytes of {field.shape}" for field in candidate.fields]
    more = "" if candidate.encoding == "json" else f", in {candidate.encoding}"
    more += f", {candidate.batch} in a batch" if candidate.batch > 1 else ""
    more += f", {candidate.connections} connections" if candidate.connections > 1 else ""
    return f"{endpoint.label}: {'; '.join(parts)}{more}"
