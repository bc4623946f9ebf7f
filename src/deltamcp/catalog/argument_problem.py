"""Problems of arguments that do not fit their schema: a sentence for the model, a place and a keyword for programs."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from deltamcp.catalog.excerpt import cut
from deltamcp.results.pointer import pointer
from deltamcp.values import JSON

_NAME_CHARS = 100
"""The characters of a name in a pointer, which a caller may have sent."""
_POINTER_CHARS = 300


class ArgumentProblem(NamedTuple):
    """One problem of the arguments of a call."""

    text: str
    """A sentence that says where and what, for the model to correct."""
    pointer: str | None = None
    """The JSON pointer of the value, or of the argument that is missing; None if the text is about no place."""
    keyword: str = ""
    """The keyword of JSON Schema that the value does not fit, or pydantic's word where there is no such keyword."""


class InvalidArgumentsError(Exception):
    """Arguments do not fit the schema. Its text has a sentence for each of the first problems, for the model."""

    def __init__(self, problems: list[ArgumentProblem]) -> None:
        super().__init__(" ".join(problem.text for problem in problems))
        self.problems = problems


def problem_at(path: Iterable[int | str], keyword: str, text: str) -> ArgumentProblem:
    """Returns the problem of the value at a path."""
    names = (cut(str(part), _NAME_CHARS) for part in path)
    return ArgumentProblem(text, cut(pointer(*names), _POINTER_CHARS), keyword)


def problem_details(problems: Sequence[ArgumentProblem]) -> list[dict[str, JSON]]:
    """Returns what programs read of the problems."""
    return [
        {"pointer": problem.pointer, "message": problem.text, "keyword": problem.keyword}
        for problem in problems
        if problem.pointer is not None
    ]
