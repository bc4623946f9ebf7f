"""The API of a warehouse, a FastAPI application with a document of its own: all that such APIs have, in memory."""

import base64
import secrets
from typing import Annotated, Any, Literal

from fastapi import (
    APIRouter,
    Body,
    Cookie,
    Depends,
    FastAPI,
    File,
    Form,
    Header,
    HTTPException,
    Query,
    Request,
    Response,
    UploadFile,
)
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from fastapi.security import (
    APIKeyCookie,
    APIKeyHeader,
    APIKeyQuery,
    HTTPAuthorizationCredentials,
    HTTPBasic,
    HTTPBasicCredentials,
    HTTPBearer,
    OAuth2,
)
from pydantic import BaseModel, Field

BEARER, HEADER_KEY, QUERY_KEY, COOKIE_KEY = (
    "bearer-0123456789",
    "header-key-01234",
    "query-key-012345",
    "cookie-key-01234",
)
USER, PASSWORD = "ada", "correct horse battery"
CLIENT_ID, CLIENT_SECRET = "robot", "robot-secret-0123"
SKUS = [
    *("alfa", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett", "kilo", "lima"),
    *("mike", "november", "oscar", "papa", "quebec", "romeo", "sierra", "tango", "uniform", "victor", "whiskey"),
]
"""The rows of every list that has pages."""
ROWS = len(SKUS)

bearer = HTTPBearer(scheme_name="bearer", auto_error=False)
header_key = APIKeyHeader(name="X-Api-Key", scheme_name="headerKey", auto_error=False)
query_key = APIKeyQuery(name="api_key", scheme_name="queryKey", auto_error=False)
cookie_key = APIKeyCookie(name="session", scheme_name="cookieKey", auto_error=False)
basic = HTTPBasic(scheme_name="basic", auto_error=False)
robot = OAuth2(
    scheme_name="robot",
    flows={"clientCredentials": {"tokenUrl": "oauth/token", "scopes": {"stock:read": "read", "stock:write": "write"}}},
    auto_error=False,
)


class Address(BaseModel):
    street: str
    city: str
    country: Literal["CH", "DE", "FR"] = "CH"


class Party(BaseModel):
    name: str = Field(min_length=1)
    address: Address
    note: str | None = None


class Parcel(BaseModel):
    kind: Literal["parcel"]
    grams: int = Field(gt=0)


class Pallet(BaseModel):
    kind: Literal["pallet"]
    layers: int


class Node(BaseModel):
    name: str
    children: list["Node"] = []


class Promised(BaseModel):
    id: int
    weight: float


def collection(name: str) -> APIRouter:
    """The five operations of a collection of parties, which every other part of the warehouse has, too."""
    router = APIRouter(prefix=f"/{name}", tags=[name])
    stored: dict[int, dict[str, Any]] = {}

    def find(number: int) -> dict[str, Any]:
        if number not in stored:
            raise HTTPException(404, f"{name} has no {number}")
        return stored[number]

    @router.get("")
    def list_all(limit: Annotated[int, Query(ge=1, le=100)] = 10, offset: int = 0) -> dict[str, Any]:
        rows = list(stored.values())
        return {"total": len(rows), "items": rows[offset : offset + limit]}

    @router.post("", status_code=201)
    def create(party: Party) -> dict[str, Any]:
        number = len(stored) + 1
        stored[number] = {"id": number, **party.model_dump()}
        return stored[number]

    @router.get("/{number}")
    def read(number: int) -> dict[str, Any]:
        return find(number)

    @router.put("/{number}")
    def replace(number: int, party: Party) -> dict[str, Any]:
        find(number)
        stored[number] = {"id": number, **party.model_dump()}
        return stored[number]

    @router.delete("/{number}", status_code=204)
    def remove(number: int) -> None:
        del stored[find(number)["id"]]

    return router


def rows(start: int, count: int) -> list[dict[str, Any]]:
    return [{"id": number, "sku": SKUS[number]} for number in range(start, min(ROWS, start + count))]


class State:
    """What a test may look at."""

    def __init__(self) -> None:
        self.busy = 0
        self.tokens_issued = 0
        self.valid_tokens: set[str] = set()
        self.bodies: list[bytes] = []


def make_app() -> FastAPI:
    app = FastAPI(title="Warehouse", version="3.1")
    state = app.state.warehouse = State()
    for name in ("customers", "suppliers", "carriers", "branches"):
        app.include_router(collection(name))

    # Authentication

    def check(given: str | None, expected: str) -> None:
        if given is None or not secrets.compare_digest(given, expected):
            raise HTTPException(401, "Not authenticated", {"www-authenticate": "Bearer"})

    @app.get("/auth/bearer", tags=["auth"])
    def with_bearer(given: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> str:
        check(given.credentials if given else None, BEARER)
        return "bearer"

    @app.get("/auth/header", tags=["auth"])
    def with_header_key(given: Annotated[str | None, Depends(header_key)]) -> str:
        check(given, HEADER_KEY)
        return "header"

    @app.get("/auth/query", tags=["auth"])
    def with_query_key(given: Annotated[str | None, Depends(query_key)], page: int = 1) -> str:
        check(given, QUERY_KEY)
        return f"query {page}"

    @app.get("/auth/cookie", tags=["auth"])
    def with_cookie_key(
        given: Annotated[str | None, Depends(cookie_key)], lang: Annotated[str, Cookie()] = "de"
    ) -> str:
        check(given, COOKIE_KEY)
        return f"cookie {lang}"

    @app.get("/auth/basic", tags=["auth"])
    def with_basic(given: Annotated[HTTPBasicCredentials | None, Depends(basic)]) -> str:
        check(f"{given.username}:{given.password}" if given else None, f"{USER}:{PASSWORD}")
        return "basic"

    @app.get("/auth/robot", tags=["auth"])
    def with_robot(given: Annotated[str | None, Depends(robot)]) -> str:
        if given is None or given.removeprefix("Bearer ") not in state.valid_tokens:
            raise HTTPException(401, "Not authenticated")
        return "robot"

    @app.post("/oauth/token", include_in_schema=False)
    async def issue_token(request: Request, authorization: Annotated[str, Header()] = "") -> Any:
        form = await request.form()
        pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        if pair != f"{CLIENT_ID}:{CLIENT_SECRET}" or form["grant_type"] != "client_credentials":
            return JSONResponse({"error": "invalid_client"}, 401)
        state.tokens_issued += 1
        token = f"token-{state.tokens_issued}-{secrets.token_hex(8)}"
        state.valid_tokens.add(token)
        return {"access_token": token, "token_type": "bearer", "expires_in": 3600}

    # Pages

    @app.get("/pages/link", tags=["pages"])
    def pages_by_link(request: Request, response: Response, page: int = 1, per_page: int = 10) -> list[dict[str, Any]]:
        if page * per_page < ROWS:
            following = request.url.include_query_params(page=page + 1)
            response.headers["link"] = f'<{request.url}>; rel="self", <{following}>; rel="next"'
        return rows((page - 1) * per_page, per_page)

    @app.get("/pages/cursor", tags=["pages"])
    def pages_by_cursor(cursor: str | None = None, limit: int = 10) -> dict[str, Any]:
        start = int(base64.b64decode(cursor)) if cursor else 0
        following = base64.b64encode(str(start + limit).encode()).decode() if start + limit < ROWS else None
        return {"data": rows(start, limit), "meta": {"next_cursor": following}}

    @app.get("/pages/address", tags=["pages"])
    def pages_by_address(request: Request, pageToken: str = "0", kind: str = "all") -> dict[str, Any]:
        start = int(pageToken) + 10
        following = str(request.url.include_query_params(pageToken=start)) if start < ROWS else None
        return {"results": rows(start - 10, 10), "next": following}

    @app.get("/pages/offset", tags=["pages"])
    def pages_by_offset(skip: int = 0, limit: int = 10) -> dict[str, Any]:
        return {"total": ROWS, "items": rows(skip, limit)}

    @app.get("/pages/number", tags=["pages"])
    def pages_by_number(page: int = 1, size: int = 10) -> dict[str, Any]:
        return {"page": page, "total_pages": -(-ROWS // size), "items": rows((page - 1) * size, size)}

    @app.get("/pages/last_id", tags=["pages"])
    def pages_by_last_id(starting_after: int | None = None, limit: int = 10) -> dict[str, Any]:
        start = 0 if starting_after is None else starting_after + 1
        return {"object": "list", "has_more": start + limit < ROWS, "data": rows(start, limit)}

    @app.get("/pages/full", tags=["pages"])
    def pages_while_full(offset: int = 0, limit: int = 10) -> list[dict[str, Any]]:
        return rows(offset, limit)

    @app.get("/pages/broken", tags=["pages"])
    def pages_that_break(page: int = 1, size: int = 10) -> dict[str, Any]:
        if page > 1:
            raise HTTPException(500, "the index is being built")
        return {"items": rows(0, size), "pages": 3}

    # Bodies

    @app.post("/shipments", tags=["shipments"])
    def ship(
        shipment: Annotated[Parcel | Pallet, Field(discriminator="kind")], express: bool = False
    ) -> dict[str, Any]:
        return {**shipment.model_dump(), "express": express}

    @app.post("/trees", tags=["shipments"])
    def plant(tree: Node) -> int:
        return 1 + sum(map(plant, tree.children))

    @app.post("/login", tags=["shipments"])
    def log_in(username: Annotated[str, Form()], roles: Annotated[list[str], Form()]) -> dict[str, Any]:
        return {"username": username, "roles": roles}

    @app.post("/photos", tags=["files"])
    def add_photos(title: Annotated[str, Form()], photos: Annotated[list[UploadFile], File()]) -> dict[str, Any]:
        return {"title": title, "sizes": [len(photo.file.read()) for photo in photos]}

    @app.post("/invoice", tags=["files"])
    def add_invoice(invoice: Annotated[bytes, File()]) -> int:
        return len(invoice)

    @app.post("/raw", tags=["files"], openapi_extra={"requestBody": {"content": {"application/octet-stream": {}}}})
    async def add_bytes(request: Request) -> int:
        return len(await request.body())

    @app.post("/words", tags=["files"])
    def add_words(words: Annotated[str, Body(media_type="text/plain")]) -> int:
        return len(words)

    @app.get("/search", tags=["shipments"])
    def search(
        q: str,
        tag: Annotated[list[str], Query()] = [],  # noqa: B006 - a declaration
        x_trace: Annotated[str | None, Header()] = None,
        lang: Annotated[str | None, Cookie()] = None,
    ) -> dict[str, Any]:
        return {"q": q, "tag": tag, "x_trace": x_trace, "lang": lang}

    # Responses

    @app.get("/files/text", tags=["files"], response_class=PlainTextResponse)
    def read_text() -> str:
        return "plain words"

    @app.get("/files/image", tags=["files"], response_class=Response)
    def read_image() -> Response:
        return Response(b"\x89PNG", media_type="image/png")

    @app.get("/files/binary", tags=["files"], response_class=Response)
    def read_binary() -> Response:
        return Response(b"\x00\x01", media_type="application/zip")

    @app.head("/files/binary", tags=["files"])
    def look_at_binary() -> Response:
        return Response(media_type="application/zip")

    @app.get("/odd/mismatch", tags=["odd"], response_model=None, responses={200: {"model": Promised}})
    def break_the_promise() -> dict[str, Any]:
        return {"id": "seven"}

    @app.get("/odd/redirect", tags=["odd"], response_model=None)
    def redirect_here() -> RedirectResponse:
        return RedirectResponse("/files/text")

    @app.get("/odd/away", tags=["odd"], response_model=None)
    def redirect_away() -> RedirectResponse:
        return RedirectResponse("http://other.example/files/text")

    # Errors

    @app.get("/errors/{status}", tags=["errors"])
    def fail(status: int) -> Any:
        headers = {"retry-after": "120"} if status in (429, 503) else {}
        raise HTTPException(status, f"this is {status}", headers)

    @app.get("/problem", tags=["errors"], response_model=None)
    def fail_by_problem() -> JSONResponse:
        problem = {
            "type": "https://example.com/out-of-credit",
            "title": "You do not have enough credit.",
            "detail": "Your balance is 30, but that costs 50.",
            "instance": "/account/12345/msgs/abc",
            "trace": ["frame"] * 200,
        }
        return JSONResponse(problem, 403, media_type="application/problem+json")

    @app.get("/page_of_proxy", tags=["errors"], response_model=None)
    def fail_by_page() -> HTMLResponse:
        style = "body{margin:0}" * 500
        return HTMLResponse(f"<html><head><style>{style}</style><title>502 Bad Gateway</title></head></html>", 502)

    @app.api_route("/busy", methods=["PUT"], tags=["errors"])
    def be_busy_once() -> str:
        state.busy += 1
        if state.busy % 2:
            raise HTTPException(503, "busy", {"retry-after": "0"})
        return "done"

    @app.post("/busy", tags=["errors"])
    def be_busy_for_posts() -> str:
        state.busy += 1
        raise HTTPException(503, "busy", {"retry-after": "0"})

    @app.post("/echo", tags=["errors"])
    async def echo_secrets(request: Request) -> dict[str, Any]:
        return dict(request.headers)

    return app
