"""The API of a ticket office, which knows nothing of MCP; `openapi.yaml` is its document.

uvicorn examples.openapi.server:app --port 8000
"""

from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException
from pydantic import BaseModel

TOKEN = "let-me-in-0123456789"  # noqa: S105 - of an example

app = FastAPI(openapi_url=None)
_tickets: list[dict[str, Any]] = [
    {"id": number, "title": f"Ticket {number}", "state": "open" if number % 3 else "closed"} for number in range(1, 26)
]


class NewTicket(BaseModel):
    title: str


@app.get("/tickets")
def list_tickets(state: str | None = None, page: int = 1, per_page: int = 10) -> dict[str, Any]:
    found = [ticket for ticket in _tickets if state in (None, ticket["state"])]
    rows = found[(page - 1) * per_page : page * per_page]
    return {"tickets": rows, "page": page, "total_pages": -(-len(found) // per_page)}


@app.post("/tickets", status_code=201)
def create_ticket(ticket: NewTicket, authorization: Annotated[str, Header()] = "") -> dict[str, Any]:
    if authorization != f"Bearer {TOKEN}":
        raise HTTPException(401, "send a token")
    _tickets.append({"id": len(_tickets) + 1, "title": ticket.title, "state": "open"})
    return _tickets[-1]


@app.get("/tickets/{number}")
def read_ticket(number: int) -> dict[str, Any]:
    if not 1 <= number <= len(_tickets):
        raise HTTPException(404, f"there is no ticket {number}")
    return _tickets[number - 1]
