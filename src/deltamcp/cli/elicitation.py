"""A server's question to whoever sits at the terminal."""

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
    """Fills in a form, a line a field. What is left empty is left to the form; the end of input declines."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Elicited] = loop.create_future()

    def settle(answer: Elicited) -> None:
        if not answered.done():
            answered.set_result(answer)

    def ask() -> None:
        answer = _read_answer(question)
        with suppress(RuntimeError):  # nobody waits any more
            loop.call_soon_threadsafe(settle, answer)

    # Not a thread of the loop's, which would wait for somebody to press a key before the program could end.
    threading.Thread(target=ask, daemon=True).start()
    return await answered


def _read_answer(question: dict[str, Any]) -> Elicited:
    print(f"\nThe server asks: {printable_text(str(question.get('message', '')))}", file=sys.stderr)
    try:
        if question.get("mode") == "url":
            return _confirm_visit(str(question.get("url", "")))
        schema = question.get("requestedSchema")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        fields = properties if isinstance(properties, dict) else {}
        given = {name: _read_field(name, field if isinstance(field, dict) else {}) for name, field in fields.items()}
    except EOFError:
        return Elicited("decline")
    return Elicited("accept", {name: value for name, value in given.items() if value is not None})


def _confirm_visit(url: str) -> Elicited:
    print(f"Open {printable_text(url)} and come back.", file=sys.stderr)
    return Elicited("accept" if input("Done? [y/N] ").strip().lower().startswith("y") else "decline")


def _read_field(name: str, field: dict[str, Any]) -> JSON:
    label = printable_text(str(field.get("title") or name))
    about = field.get("enum") or field.get("description") or field.get("type", "")
    usual = f" [{printable_text(str(field['default']))}]" if "default" in field else ""
    text = input(f"  {label} ({printable_text(str(about))}){usual}: ").strip()
    if not text:
        return None
    if field.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return {"y": True, "yes": True, "n": False, "no": False}.get(text.lower(), text)
