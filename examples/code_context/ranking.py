"""What a task is about: the symbols its words match, and those a walk along the calls reaches from them."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import PurePosixPath
from typing import NamedTuple

from examples.code_context.graph import Graph
from examples.code_context.source import BODY, HOME, Scope
from examples.code_context.words import stem, wanted, words

_SEEDS = 24
_SEED = 0.3
"""Of the best match; what matches less is reached by the walk, or not at all."""
_RESTART = 0.4
_STEPS = 12
"""0.6 ** 12: two thousandths of the rank are still on their way."""
_FARTHEST = 2
_GRAIN = 20
"""Scores come in twentieths. In hundredths twice as many would change from one commit to the next, and say no more."""
_STATURE = {"class": 1.0, "interface": 1.0, "function": 1.0, "file": 0.9, "method": 0.8, "type": 0.5, "const": 0.5}
_DUNDER = 0.6
_ASIDE = {stem(place): worth for place, worth in {"tests": 0.25, "bench": 0.5, "docs": 0.5, "examples": 0.5}.items()}
"""What the code beside the code proper is worth, unless the task names it."""


class Ranked(NamedTuple):
    scope: Scope
    score: float
    """1 for the best, in steps of a twentieth."""
    distance: int
    """Edges from the nearest match."""


def ranked(graph: Graph, task: str, path: str = "") -> list[Ranked]:
    """Symbols by a random walk that keeps returning to those the task's words match, best first.

    The same graph and task give the same ranking, in any process.
    """
    asked = wanted(task)
    seeds = _seeds(graph, asked, path)
    distances = _distances(graph, seeds)
    rank = dict(seeds)
    for _ in range(_STEPS):
        arriving = dict.fromkeys(distances, 0.0)
        for name, mass in rank.items():
            for neighbour, share in graph.neighbours[name]:
                if neighbour in arriving:
                    arriving[neighbour] += mass * share
        rank = {name: _RESTART * seeds.get(name, 0.0) + (1 - _RESTART) * mass for name, mass in arriving.items()}
    found = [
        (round(mass * _worth(graph.symbols[name], asked), 12), graph.symbols[name])
        for name, mass in rank.items()
        if mass and _within(graph.symbols[name], path)
    ]
    found.sort(key=lambda item: (-item[0], item[1].name))
    return [
        Ranked(scope, max(1, round(_GRAIN * mass / found[0][0])) / _GRAIN, distances[scope.name])
        for mass, scope in found
    ]


def _seeds(graph: Graph, asked: dict[str, float], path: str) -> dict[str, float]:
    """The symbols that match best, 1 the best of them."""
    weights: dict[str, float] = {}
    for word, weight in asked.items():
        bearers = sum(scope.words.get(word, 0.0) > BODY for scope in graph.symbols.values())
        if bearers:  # rarity in powers of two: one symbol more or less seldom changes it
            weights[word] = weight * (len(graph.symbols) // (bearers + 1)).bit_length()
    scores: dict[str, float] = {}
    for name, scope in graph.symbols.items():
        said = covered = 0.0
        for word, weight in weights.items():
            if word in scope.words:
                worth = scope.words[word]
                said += weight * worth
                covered += asked[word] * min(1.0, worth / HOME)
        if said and _within(scope, path):
            own = words(name.rpartition(".")[2])
            named = sum(word in weights for word in own) / max(1, len(own))
            scores[name] = said * covered * (1 + named) * _worth(scope, asked)
    best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:_SEEDS]
    return {name: score / best[0][1] for name, score in best if score >= _SEED * best[0][1]}


def _distances(graph: Graph, seeds: Iterable[str]) -> dict[str, int]:
    distances = dict.fromkeys(seeds, 0)
    rim = list(distances)
    for distance in range(1, _FARTHEST + 1):
        reached = dict.fromkeys(other for name in rim for other, _ in graph.neighbours[name] if other not in distances)
        distances |= dict.fromkeys(reached, distance)
        rim = list(reached)
    return distances


def _worth(scope: Scope, asked: dict[str, float]) -> float:
    worth = _STATURE[scope.kind]
    if scope.name.rpartition(".")[2].startswith("__"):
        worth *= _DUNDER
    return worth * min((_ASIDE[place] for place in _asides(scope.path) if place not in asked), default=1.0)


@lru_cache(maxsize=50_000)
def _asides(path: str) -> tuple[str, ...]:
    *folders, file = PurePosixPath(path).with_suffix("").parts
    return tuple(place for place in map(stem, (*folders, file.partition("_")[0])) if place in _ASIDE)


def _within(scope: Scope, path: str) -> bool:
    return not path or PurePosixPath(scope.path).is_relative_to(path)
