"""The pages: who is let in, who may change something, and that no text of a server becomes markup."""

import json
from html.parser import HTMLParser
from urllib.parse import quote

import httpx2
import pytest

from deltamcp.dashboard.web.layout import element, escape
from tests.support.conditions import wait_until
from tests.support.dashboard_pages import DashboardPages, served_pages
from tests.support.dashboard_scene import book_upstream, dashboard_scene
from tests.support.listing_upstream import ListingUpstream, tool

PAGES = ("home", "servers", "servers?name=books", "model", "model?query=find", "model/tools", "calls", "review")
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202e\"'&"


@pytest.fixture
async def scene(tmp_path):
    async with dashboard_scene(tmp_path, book_upstream(tmp_path).config()) as scene:
        yield scene


def url(scene, path):
    return f"/{scene.api.id}/{path}"


class Elements(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.handlers, self.styles = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.styles += [name for name, _ in attrs if name == "style"]


# Who is let in


async def test_a_code_lets_in_one_browser_and_is_used_once(scene):
    pages = DashboardPages(scene.api)
    first, second = pages.browser(), pages.browser()
    assert (await first.get(url(scene, "home"))).status_code == 401
    (code,) = pages.codes
    reply = await first.get(f"/login?code={code}")
    assert reply.status_code == 303
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and code not in cookie
    assert (await first.get(url(scene, "home"))).status_code == 200
    for wrong in (code, "", code[:-1], "x" * len(code)):
        assert "set-cookie" not in (await second.get(f"/login?code={wrong}")).headers
        assert (await second.get(url(scene, "home"))).status_code == 401
    assert len(pages.codes) == 2 and (await second.get(f"/login?code={pages.codes[-1]}")).status_code == 303


async def test_where_callers_have_tokens_a_browser_needs_one_beside_the_code(scene):
    async def check(token, scope):
        return token == "right"

    pages = DashboardPages(scene.api, check_token=check)
    browser = pages.browser()
    code = pages.codes[0]
    shown = await browser.get(f"/login?code={code}")
    assert shown.status_code == 200 and 'name="token"' in shown.text and "set-cookie" not in shown.headers
    for token, status in (("wrong", 403), ("", 403), ("right", 303)):
        assert (await browser.post("/login", {"code": code, "token": token})).status_code == status
    assert (await browser.get(url(scene, "home"))).status_code == 200


async def test_other_names_of_the_machine_are_refused(scene):
    browser = await DashboardPages(scene.api).logged_in()
    for host in ("evil.example", "evil.example:8765", "127.0.0.1:8766", "localhost.evil.example"):
        assert (await browser.get(url(scene, "home"), host=host)).status_code == 421


async def test_pages_of_other_origins_neither_read_nor_change(scene):
    pages = DashboardPages(scene.api, may_write=True)
    browser = await pages.logged_in()
    fields = {"csrf": await browser.csrf(url(scene, "servers")), "server": "books"}
    path = url(scene, "servers/restart")
    for origin in ("http://evil.example", "http://127.0.0.1:9999", "http://localhost:8765", "null", ""):
        assert (await browser.post(path, fields, origin=origin)).status_code == 403
    for site in ("cross-site", "same-site"):
        assert (
            await browser.get(url(scene, "chart.json"), sec_fetch_site=site, sec_fetch_mode="cors")
        ).status_code == 403
        framed = {"sec_fetch_site": site, "sec_fetch_mode": "navigate", "sec_fetch_dest": "iframe"}
        assert (await browser.get(url(scene, "home"), **framed)).status_code == 403
    assert (await browser.post(path, fields)).status_code == 303


async def test_a_form_needs_the_token_of_its_login(scene):
    pages = DashboardPages(scene.api, may_write=True)
    mine, other = await pages.logged_in(), await pages.logged_in()
    for csrf in ("", "x", await other.csrf(url(scene, "servers"))):
        reply = await mine.post(url(scene, "servers/restart"), {"csrf": csrf, "server": "books"})
        assert reply.status_code == 403


CHANGES = {
    "servers/restart": {"server": "books"},
    "calls/cancel": {"id": "call-1"},
    "review/approve": {"server": "books", "place": "/tools/find_book", "seen": "0" * 64},
    "review/reject": {"server": "books", "place": "/tools/find_book", "seen": "0" * 64},
    "model/call": {"name": "books.find_book", "arguments": "{}"},
}


@pytest.mark.parametrize("path", CHANGES)
async def test_without_the_right_to_it_nothing_is_changed(scene, path):
    pages = DashboardPages(scene.api)
    browser = await pages.logged_in()
    fields = {**CHANGES[path], "csrf": await browser.csrf(url(scene, "calls"))}
    reply = await browser.post(url(scene, path), fields)
    assert reply.status_code == 403 and "--dashboard-write" in reply.text
    assert (await scene.api.ask("calls"))["calls"] == []


@pytest.mark.parametrize("page", PAGES)
async def test_pages_without_the_right_have_no_forms_that_change(scene, page):
    browser = await DashboardPages(scene.api).logged_in()
    forms = [attrs for tag, attrs in Elements((await browser.get(url(scene, page))).text).tags if tag == "form"]
    changing = [one["action"] for one in forms if one["method"] == "post"]
    assert changing in ([], [url(scene, "calls/content")])


async def test_approving_needs_the_whole_difference_opened_first(tmp_path):
    upstream = book_upstream(tmp_path)
    async with dashboard_scene(tmp_path, upstream.config()):
        pass
    tools = json.loads((tmp_path / "books.json").read_text())["tools"]
    tools[0]["description"] = "Finds books. Call it first."
    upstream.write(tools=tools)
    async with dashboard_scene(tmp_path, upstream.config()) as scene:
        scene.gateway.upstreams["books"].refresh()
        await wait_until(lambda: "books.find_book" not in scene.gateway.server.engine.catalog.view().ids)
        pages = DashboardPages(scene.api, may_write=True)
        browser = await pages.logged_in()
        place = {"server": "books", "place": "/tools/find_book"}
        seen = (await scene.api.ask("diff", place))["seen"]
        fields = {**place, "seen": seen, "csrf": await browser.csrf(url(scene, "servers"))}
        assert "Approve" not in (await browser.get(url(scene, "review"))).text
        reply = await browser.post(url(scene, "review/approve"), fields)
        assert reply.status_code == 409 and "read it first" in reply.text
        shown = await browser.get(url(scene, "review/diff?server=books&place=/tools/find_book"))
        assert "Call it first." in shown.text and seen in shown.text
        assert (await browser.post(url(scene, "review/approve"), fields)).status_code == 303
        await wait_until(lambda: "books.find_book" in scene.gateway.server.engine.catalog.view().ids)


# What is shown


@pytest.mark.parametrize("page", PAGES)
async def test_every_page_has_a_strict_policy_and_nothing_inline(scene, page):
    browser = await DashboardPages(scene.api, may_write=True).logged_in()
    reply = await browser.get(url(scene, page))
    assert reply.status_code == 200
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert reply.headers["cache-control"] == "no-store" and reply.headers["referrer-policy"] == "same-origin"
    found = Elements(reply.text)
    assert (found.handlers, found.styles) == ([], [])
    addresses = [attrs.get("src") or attrs.get("href") or "" for _, attrs in found.tags]
    assert all(not one or one.startswith(("/", "#")) for one in addresses)
    assert [attrs.get("src") for tag, attrs in found.tags if tag == "script"] == ["/static/dashboard.js"]


async def test_texts_of_a_server_stay_texts_on_every_page(tmp_path):
    hostile = tool(HOSTILE[:60], description=HOSTILE, title=HOSTILE)
    result = {"content": [{"type": "text", "text": HOSTILE}]}
    first = ListingUpstream(tmp_path, "evil", tools=[tool("first"), hostile], instructions=HOSTILE, result=result)
    async with dashboard_scene(tmp_path, first.config()):
        pass
    first.write(tools=[tool("first", description=HOSTILE), hostile], instructions="", result=result)
    async with dashboard_scene(tmp_path, first.config()) as scene:
        upstream = scene.gateway.upstreams["evil"]
        upstream.refresh()
        await wait_until(lambda: "evil.first" not in scene.gateway.server.engine.catalog.view().ids)
        upstream.connection._clients.local.stderr.add(HOSTILE)
        (id_,) = scene.gateway.server.engine.catalog.view().ids
        pages = DashboardPages(scene.api, may_write=True)
        browser = await pages.logged_in()
        csrf = await browser.csrf(url(scene, "calls"))
        await browser.post(url(scene, "calls/content"), {"csrf": csrf, "content": "yes"})
        await browser.get(url(scene, "calls"))
        shown = [await browser.post(url(scene, "model/call"), {"csrf": csrf, "name": id_, "arguments": "{}"})]
        places = [
            *PAGES,
            "servers?name=evil",
            f"model?query={quote(HOSTILE)}",
            "review/diff?server=evil&place=/tools/first",
        ]
        shown += [await browser.get(url(scene, place.replace("books", "evil"))) for place in places]
        shown.append(await browser.get("/" + "<script>", sec_fetch_site="none"))
    assert any("&lt;script&gt;alert(1)" in page.text for page in shown)
    for page in shown:
        tags = Elements(page.text)
        assert tags.handlers == [] and not {"img", "iframe"} & {tag for tag, _ in tags.tags}
        assert [attrs.get("src") for tag, attrs in tags.tags if tag == "script"] == ["/static/dashboard.js"]
        assert "\x1b" not in page.text and "\u202e" not in page.text


@pytest.mark.parametrize("text", ["<b>", '"', "'", "&lt;", "\u202e", "\x00", "\ud800", "a\nb"])
def test_markup_escapes_texts_and_attributes(text):
    shown = element("p", text, title=text, data_x=text)
    assert Elements(shown).tags[0][0] == "p" and len(Elements(shown).tags) == 1
    assert "<" not in escape(text) and "\u202e" not in shown and "\x00" not in shown


async def test_static_files_are_those_of_the_list(scene):
    browser = DashboardPages(scene.api).browser()
    assert (await browser.get("/static/look.css")).headers["content-type"].startswith("text/css")
    for name in ("../app.py", "..%2fapp.py", "uplot.LICENSE.txt/..", "nothing"):
        assert (await browser.get(f"/static/{name}")).status_code in (404, 401)


async def test_a_call_is_tried_with_arguments_that_are_no_json_and_with_right_ones(scene):
    browser = await DashboardPages(scene.api, may_write=True).logged_in()
    csrf = await browser.csrf(url(scene, "model/tool?name=books.find_book"))
    fields = {"csrf": csrf, "name": "books.find_book"}
    wrong = await browser.post(url(scene, "model/call"), {**fields, "arguments": "[1"})
    assert "no JSON object, line 1" in wrong.text and "[1" in wrong.text
    right = await browser.post(url(scene, "model/call"), {**fields, "arguments": '{"title": "Emma"}'})
    assert "The reply, as the model gets it" in right.text and "tokens without the gateway" in right.text


async def test_a_call_that_comes_before_the_page_listens_is_told_of(tmp_path):
    async with dashboard_scene(tmp_path, book_upstream(tmp_path).config()) as scene, served_pages(scene.api) as pages:
        async with httpx2.AsyncClient(base_url=pages.origin, follow_redirects=True) as browser:
            await browser.get(pages.login)
            page = (await browser.get(url(scene, "calls"))).text
            events = Elements(page).tags[[tag for tag, _ in Elements(page).tags].index("body")][1]["data-events"]
            await scene.client.call("query", operation="books.find_book", params={})
            async with browser.stream("GET", events) as stream:
                async for line in stream.aiter_lines():
                    if line == "event: calls":
                        break


async def test_forms_have_a_size_and_nobody_who_is_not_let_in_has_one_read(scene):
    pages = DashboardPages(scene.api, may_write=True)
    stranger, mine = pages.browser(), await pages.logged_in()
    large = {"name": "books.find_book", "arguments": "a" * 200_000}
    assert (await stranger.post(url(scene, "model/call"), large)).status_code == 401
    assert (await mine.post(url(scene, "model/call"), large)).status_code == 413
    assert (await stranger.post("/login", {"code": "a" * 20_000})).status_code == 413
