"""Files linked to a graph: what their names mean, and so who calls whom."""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from examples.code_context.source import CALL, CLASS, INSTANCE, ITEM, Chain, Scope

STRENGTH = {"calls": 1.0, "inherits": 1.0, "overrides": 0.6, "uses": 0.4, "contains": 0.3, "imports": 0.2}
"""How readily a walk takes an edge. Of two edges between the same ends the stronger is kept."""
_DEEPEST = 8
"""Of names that stand for names: `a = b`, `b = c()`, ..."""


class Meaning(NamedTuple):
    """A symbol, or an instance of one."""

    scope: Scope
    is_instance: bool = False


class Graph:
    """Every symbol of some modules by its qualified name, and the edges between them."""

    def __init__(self, modules: Iterable[Scope]) -> None:
        self._modules = {module.name: module for module in modules}
        ends = Counter(end for name in self._modules for end in _ends(name))
        self._by_end = {end: name for name in self._modules for end in _ends(name) if ends[end] == 1}
        self._lines: dict[Scope, list[Scope]] = {}
        self.symbols: dict[str, Scope] = {}
        for module in self._modules.values():
            for scope in module.everything():
                known = self.symbols.setdefault(scope.name, scope)
                if known.kind == "file":  # a package's member hides a module of the same name
                    self.symbols[scope.name] = scope
        self.edges: dict[tuple[str, str], str] = {}
        """Kinds by source and target."""
        for scope in self.symbols.values():
            self._link(scope)
        self.neighbours = self._weigh()
        """Of each symbol, in either direction, with the share of its rank that goes there."""

    def _link(self, scope: Scope) -> None:
        for name, member in scope.members.items():
            self._edge(scope, member, "contains")
            for base in self._line(scope)[1:]:
                if name in base.members and not name.startswith("__"):
                    self._edge(member, base.members[name], "overrides")
        for source, name in scope.imported:
            module = self._module(f"{source}.{name}", scope) or self._module(source, scope)
            if module is not None:
                self._edge(scope, module, "imports")
        for chain in scope.bases:
            for target, _ in self._met(chain, scope):
                self._edge(scope, target, "inherits")
        for chain in scope.chains:
            for target, is_called in self._met(chain, scope):
                if target is not scope.home:
                    self._edge(scope, target, "calls" if is_called else "uses")

    def _edge(self, source: Scope, target: Scope, kind: str) -> None:
        ends = (source.name, target.name)
        if source is target or self.symbols.get(source.name) is not source or self.symbols[target.name] is not target:
            return
        if ends not in self.edges or STRENGTH[kind] > STRENGTH[self.edges[ends]]:
            self.edges[ends] = kind

    def _weigh(self) -> dict[str, list[tuple[str, float]]]:
        """Normalised from both ends, so that a symbol everyone calls does not gather everyone's rank."""
        degrees = dict.fromkeys(self.symbols, 0.0)
        for ends, kind in self.edges.items():
            for end in ends:
                degrees[end] += STRENGTH[kind]
        neighbours: dict[str, list[tuple[str, float]]] = {name: [] for name in self.symbols}
        for (source, target), kind in self.edges.items():
            share = STRENGTH[kind] / math.sqrt(degrees[source] * degrees[target])
            neighbours[source].append((target, share))
            neighbours[target].append((source, share))
        return neighbours

    # What names mean

    def _met(self, chain: Chain, scope: Scope) -> list[tuple[Scope, bool]]:
        """The symbols that an expression comes by, modules apart, and whether it calls them."""
        met: list[tuple[Scope, bool]] = []
        self._follow(chain, scope, 0, met)
        return [(target, is_called) for target, is_called in met if target.kind != "file"]

    def _follow(
        self, chain: Chain, scope: Scope, depth: int, met: list[tuple[Scope, bool]] | None = None
    ) -> Meaning | None:
        if not chain or depth > _DEEPEST:
            return None
        if chain[:2] == ("super", CALL) and scope.home is not None:
            meaning = next((Meaning(base, True) for base in self._line(scope.home)[1:]), None)
            chain = chain[1:]
        else:
            meaning = self._name(chain[0], scope, depth)
        for position, step in enumerate(chain):
            if position and meaning is not None:
                meaning = self._step(meaning, step, depth)
            if meaning is None:
                return None
            if meaning.is_instance:
                continue
            is_read = meaning.scope.is_property and position > 0
            if met is not None:
                met.append((meaning.scope, is_read or chain[position + 1 : position + 2] == (CALL,)))
            if is_read:
                meaning = self._called(meaning, depth)
        return meaning

    def _step(self, meaning: Meaning, step: str, depth: int) -> Meaning | None:
        if step == CALL:
            return self._called(meaning, depth)
        if step == ITEM:
            return None if meaning.is_instance else meaning  # Box[int] is Box; what a box holds is not known
        return self._attribute(meaning, step, depth)

    def _name(self, name: str, scope: Scope, depth: int) -> Meaning | None:
        if name in (INSTANCE, CLASS, "Self"):
            owner = scope if scope.is_class else scope.home
            return Meaning(owner, name == INSTANCE) if owner else None
        if scope.home is not None:
            if name in scope.members:
                return Meaning(scope.members[name])
            if name in scope.bound:
                return self._follow(scope.bound[name], scope, depth + 1)
            if name in scope.imports:
                return self._imported(*scope.imports[name], scope.module, depth)
        return self._of_module(scope.module, name, depth)

    def _of_module(self, module: Scope, name: str, depth: int) -> Meaning | None:
        if depth > _DEEPEST:
            return None
        if name in module.members:
            return Meaning(module.members[name])
        if name in module.imports:
            return self._imported(*module.imports[name], module, depth)
        if name in module.bound:
            return self._follow(module.bound[name], module, depth + 1)
        if f"{module.name}.{name}" in self._modules:
            return Meaning(self._modules[f"{module.name}.{name}"])
        for star in module.stars:
            found = self._imported(star, name, module, depth)
            if found is not None:
                return found
        return None

    def _imported(self, source: str, name: str, importer: Scope, depth: int) -> Meaning | None:
        module = self._module(source, importer)
        if module is not None and name:
            return self._of_module(module, name, depth + 1)
        module = module or self._module(f"{source}.{name}", importer)
        return Meaning(module) if module is not None else None

    def _module(self, name: str, importer: Scope) -> Scope | None:
        """By its full name; beside the importer, as scripts find it; or where only one file can be meant."""
        if name in self._modules:
            return self._modules[name]
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        beside = f"{importer.name.rpartition('.')[0]}.{name}"
        return self._modules.get(beside) or self._modules.get(self._by_end.get(name, ""))

    def _called(self, meaning: Meaning, depth: int) -> Meaning | None:
        scope = meaning.scope
        if depth > _DEEPEST:
            return None
        if meaning.is_instance:
            method = self._attribute(meaning, "__call__", depth)
            return self._called(method, depth + 1) if method else None
        if scope.is_class:
            return Meaning(scope, True)
        if scope.is_function:
            place = scope.home if scope.returns[:1] == ("Self",) else scope.module
            return self._follow(scope.returns, place or scope, depth + 1)
        value = self._follow(scope.module.bound.get(scope.name.rpartition(".")[2], ()), scope.module, depth + 1)
        return self._called(value, depth + 1) if value else None

    def _attribute(self, meaning: Meaning, name: str, depth: int) -> Meaning | None:
        scope = meaning.scope
        if depth > _DEEPEST:
            return None
        if scope.kind == "file":
            return self._of_module(scope, name, depth)
        if scope.kind in ("const", "type"):
            value = self._follow(scope.module.bound.get(scope.name.rpartition(".")[2], ()), scope.module, depth + 1)
            return self._attribute(value, name, depth + 1) if value else None
        for base in self._line(scope):
            if name in base.members:
                return Meaning(base.members[name])
            if name in base.attributes:
                place, chain = base.attributes[name]
                return self._follow(chain, place, depth + 1)
        return None

    def _line(self, scope: Scope) -> list[Scope]:
        """A class and those it inherits from, nearest first."""
        if scope not in self._lines:
            line = self._lines[scope] = [scope]  # already, for classes that inherit from themselves
            for chain in scope.bases:
                base = self._follow(chain, scope.home or scope, 0)
                if base is not None and not base.is_instance:
                    line += [above for above in self._line(base.scope) if above not in line]
        return self._lines[scope]


def _ends(name: str) -> Iterator[str]:
    """What a module may be called below a source root that nobody told us of: `app.models` of `back.app.models`."""
    parts = name.split(".")
    return (".".join(parts[start:]) for start in range(1, len(parts) - 1))
