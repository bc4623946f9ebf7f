"""What one reply shows of a result, and what it costs with everything that is said around it."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from deltamcp.results.budget import Budget
from deltamcp.results.encode import encode
from deltamcp.results.policy import ResolvedPolicy
from deltamcp.values import JSON
from deltamcp.wire import jsonrpc

Unit: TypeAlias = Literal["rows", "keys", "characters", "JSON characters", "whole"]
"""What a window counts: the items of a list, the members of an object, a text, the text of a JSON value, nothing."""


class Window(Struct, frozen=True):
    """A part of a view from `start` to `end` of `total` units."""

    unit: Unit
    start: int
    end: int
    total: int
    text: str
    """As the model reads it."""
    note: str = ""
    """How much there is, and how to read on."""
    tail: str = ""
    """The end of a text whose middle is left out."""
    value: JSON | UnsetType = UNSET
    """The same for programs, unless it is a text."""
    form: Literal["json", "table", "text"] = "json"
    cuts: tuple[str, ...] = ()
    """Pointers to what is not whole, from the view."""

    @property
    def next(self) -> int | None:
        return self.end if self.end < self.total else None

    @property
    def texts(self) -> list[str]:
        return [self.text, *(part for part in (self.note, self.tail) if part)]


def budget_of(policy: ResolvedPolicy) -> Budget:
    return Budget(policy.max_tokens, policy.model, policy.max_chars)


class Frame(Struct, frozen=True):
    """What goes around a window, and how much room there is for all of it."""

    policy: ResolvedPolicy
    note: Callable[[Window], str]
    other_text: str = ""
    """What else a model reads of the reply."""
    structured: bool = False
    """The value goes out a second time, as structured content."""

    @property
    def budget(self) -> Budget:
        return budget_of(self.policy)

    def without_tables(self) -> "Frame":
        return replace(self, policy=replace(self.policy, tables=False))

    def add_note(self, window: Window) -> Window:
        return replace(window, note=self.note(window))

    def make_window(
        self, unit: Unit, value: JSON, start: int, end: int, total: int, cuts: tuple[str, ...] = ()
    ) -> Window:
        """A JSON value as a window, in its shortest form."""
        policy = self.policy
        # Beside structured content the text is JSON: MCP asks for the same, serialised.
        tables = policy.tables and not self.structured
        encoded = encode(value, tables=tables, dictionary=policy.dictionary, model=policy.model)
        window = Window(unit, start, end, total, encoded.text, value=value, form=encoded.form, cuts=cuts)
        return self.add_note(window)

    def cost(self, window: Window) -> int:
        """Of the whole reply: everything a model may be shown of it."""
        parts = [*window.texts, self.other_text]
        if self.structured and window.value is not UNSET:
            parts.append(jsonrpc.encode(window.value).decode())
        return self.budget.cost_of(parts)
