"""Which items of a server are shown, by their tags and names: to all, and to principals with rules of their own."""

from collections.abc import Collection
from typing import NamedTuple, TypeAlias

from deltamcp.values import Principal


class VisibilityRule(NamedTuple):
    """Shows or hides the items that it fits; without tags and names it fits all."""

    is_shown: bool
    tags: frozenset[str] | None
    """An item fits that has one of them; None if any does."""
    names: frozenset[str] | None
    """Names of tools, prompts and resources, URIs and templates; None if any fits. An item has to fit both."""

    def fits(self, names: Collection[str], tags: frozenset[str]) -> bool:
        return (self.names is None or not self.names.isdisjoint(names)) and (
            self.tags is None or not self.tags.isdisjoint(tags)
        )


Rules: TypeAlias = tuple[VisibilityRule, ...]
"""Rules in the order in which they were given; the last one that fits an item decides."""


def is_shown(rules: Rules, names: Collection[str], tags: frozenset[str]) -> bool:
    """Returns whether an item is shown; without a rule that fits, it is."""
    return next((rule.is_shown for rule in reversed(rules) if rule.fits(names, tags)), True)


def add_rule(rules: Rules, rule: VisibilityRule) -> Rules:
    """Returns rules with one more, without those that it makes meaningless, so that they do not pile up."""
    if rule.tags is None and rule.names is None:
        return (rule,)
    return (*(one for one in rules if (one.tags, one.names) != (rule.tags, rule.names)), rule)


class Visibility:
    """The rules of one server. Threads may add some; whoever reads them sees the rules before or after that."""

    def __init__(self) -> None:
        self._shared: Rules = ()
        self._own: dict[str, Rules] = {}
        """By owner, what comes after the shared rules."""

    @property
    def has_rules(self) -> bool:
        return bool(self._shared or self._own)

    @property
    def differs(self) -> bool:
        """Whether principals may see different items."""
        return bool(self._own)

    def add(self, rule: VisibilityRule, principal: Principal | None) -> None:
        """Adds a rule for all, or for one principal, whose rules come after those for all."""
        if principal is None:
            self._shared = add_rule(self._shared, rule)
        else:
            self._own[principal.owner] = add_rule(self._own.get(principal.owner, ()), rule)

    def reset(self, principal: Principal | None) -> None:
        """Shows everything again; to a principal, what is shown to others."""
        if principal is None:
            self._shared = ()
        else:
            self._own.pop(principal.owner, None)

    def rules(self, principal: Principal) -> Rules:
        """Returns the rules for a principal."""
        own = self._own.get(principal.owner) if self._own else None
        return self._shared if own is None else (*self._shared, *own)
