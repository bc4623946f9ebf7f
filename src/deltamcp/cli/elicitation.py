"""Answers a server's elicitation by asking the user at the terminal."""

import asyncio
import json
import sys
import threading
from contextlib import suppress
from typing import Any

from deltamcp.cli.output import printable_text
from deltamcp.context import Elicited
from deltamcp.values import JSON


async def ask_user(question: dict[str, JSON]) -> Elicited:
    """Asks the user for one field per line. An empty line leaves a field to its default; the end of input declines."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Elicited] = loop.create_future()

    def set_answer(elicited: Elicited) -> None:
        if not answer.done():
            answer.set_result(elicited)

    def read_answer() -> None:
        elicited = _read_answer(question)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(set_answer, elicited)

    # Not the loop's executor: the program could not end before the user has pressed a key.
    threading.Thread(target=read_answer, daemon=True).start()
    return await answer


def _read_answer(question: dict[str, Any]) -> Elicited:
    print(f"\nThe server asks: {printable_text(str(question.get('message', '')))}", file=sys.stderr)
    try:
        if question.get("mode") == "url":
            return _confirm_visit(str(question.get("url", "")))
        schema = question.get("requestedSchema")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        fields = properties if isinstance(properties, dict) else {}
        values = {name: _read_field(name, field if isinstance(field, dict) else {}) for name, field in fields.items()}
    except EOFError:
        return Elicited("decline")
    return Elicited("accept", {name: value for name, value in values.items() if value is not None})


def _confirm_visit(url: str) -> Elicited:
    print(f"Open {printable_text(url)} and come back.", file=sys.stderr)
    return Elicited("accept" if input("Done? [y/N] ").strip().lower().startswith("y") else "decline")


def _read_field(name: str, field: dict[str, Any]) -> JSON:
    label = printable_text(str(field.get("title") or name))
    hint = field.get("enum") or field.get("description") or field.get("type", "")
    default = f" [{printable_text(str(field['default']))}]" if "default" in field else ""
    text = input(f"  {label} ({printable_text(str(hint))}){default}: ").strip()
    if not text:
        return None
    if field.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return {"y": True, "yes": True, "n": False, "no": False}.get(text.lower(), text)
