"""Attacks on the dashboard of a gateway: pages of others, other users of the machine, and the servers it shows.

Beside the rule, nothing that the attacker says runs in the browser, nothing is sent elsewhere, and nothing is changed.
"""

import asyncio
import contextlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from bench.dashboard_process import DashboardProcess
from bench.hostile.attack import Answered
from bench.hostile.attacked_dashboard import attacked_dashboard, state, watched
from bench.hostile.rule import ATTEMPTS, Measured, best_of
from bench.hostile.stores import SkippedError
from tests.support import chromium as chromium_program
from tests.support.chromium import Page, chromium

_GUESSES = 3_000
_NOBODY = 65534
_STREAMS = 150


class DashboardAttack(NamedTuple):
    name: str
    title: str
    run: Callable[[DashboardProcess], Answered]


def measure(attack: DashboardAttack, library: str, bound: float, attempts: int = ATTEMPTS) -> Measured:
    """Attacks a gateway of its own; again if it breaks the rule, and the best figures are taken."""
    made: list[Measured] = []
    while len(made) < attempts:
        with attacked_dashboard() as dashboard:
            before = state(dashboard)
            began = time.monotonic()
            with watched(dashboard) as noticed:
                answered = attack.run(dashboard)
            took = time.monotonic() - began
            broken = answered.broken
            if (after := state(dashboard)) != before:
                broken = f"the attack has changed something: {before} became {after}"
            made.append(
                Measured(
                    waited_ms=noticed[0].waited_ms,
                    grown_mb=noticed[0].grown_mb,
                    answered=f"{answered.text}; {took:.1f} s",
                    broken=broken,
                )
            )
        if not made[-1].is_doubtful:
            break
    return best_of(made)


# Requests


def _statuses(replies: list[int]) -> str:
    return ", ".join(f"{replies.count(status)} × {status}" for status in sorted(set(replies)))


def _rebind(dashboard: DashboardProcess) -> Answered:
    """Comes by other names, with the cookie of the user, as a page does whose name now leads to this machine."""
    cookie, id_ = dashboard.log_in(), dashboard.id
    names = ("evil.example", f"evil.example:{dashboard.port}", "127.0.0.1.evil.example", "", "127.0.0.1:1")
    replies = [
        dashboard.request("GET", f"/{id_}/{page}", Host=name, Cookie=cookie).status
        for name in names
        for page in ("home", "chart.json", "servers", "model")
    ]
    replies += [
        dashboard.request(
            "POST", f"/{id_}/servers/restart", {"server": "tame"}, Host=name, Cookie=cookie, Origin=f"http://{name}"
        ).status
        for name in names
    ]
    broken = "" if all(status >= 400 for status in replies) else f"some are served: {_statuses(replies)}"
    return Answered(_statuses(replies), broken)


def _use_codes(dashboard: DashboardProcess) -> Answered:
    """Uses a code again, and guesses thousands of others."""
    used = dashboard.await_code()
    dashboard.log_in()
    newest = dashboard.await_code(2)
    guesses = [used, used, newest[:-1], newest.swapcase(), newest + "A", "", "\u0661", "0" * 24]
    guesses += [f"{number:024}" for number in range(_GUESSES)]
    let_in = [code for code in guesses if "set-cookie" in _try_code(dashboard, code)]
    log = " ".join(path.read_text(errors="replace") for path in dashboard.folder.rglob("*.log") if path.is_file())
    broken = f"{len(let_in)} guesses let somebody in" if let_in else ""
    if any(code in log for code in dashboard.codes()):
        broken = "a code is in a log"
    if "set-cookie" not in _try_code(dashboard, newest):
        broken = "the guesses have made the user's own code useless"
    return Answered(f"{len(guesses):,} guesses, none lets in", broken)


def _try_code(dashboard: DashboardProcess, code: str) -> dict[str, str]:
    return dashboard.request("GET", f"/login?code={quote(code)}").headers


def _hold_open(dashboard: DashboardProcess) -> Answered:
    """Opens streams of events and connections that say nothing, as many as it is let."""
    cookie, id_ = dashboard.log_in(), dashboard.id
    request = f"GET /{id_}/events?calls=0 HTTP/1.1\r\nHost: 127.0.0.1:{dashboard.port}\r\nCookie: {cookie}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        opened = 0
        for number in range(_STREAMS * 2):
            with contextlib.suppress(OSError):
                one = stack.enter_context(socket.create_connection(("127.0.0.1", dashboard.port), 5))
                one.sendall(request.encode() if number % 2 else b"GET / HTTP/1.1\r\n")
                opened += 1
        for _ in range(50):
            dashboard.call("execute", {"operation": "tame.rest", "params": {}})
        time.sleep(1)
    return Answered(f"{opened} connections are open at once")


def _post_large(dashboard: DashboardProcess) -> Answered:
    """Posts forms of many megabytes and of many fields, with the user's cookie and without."""
    cookie, id_ = dashboard.log_in(), dashboard.id
    replies = []
    for body in (
        b"csrf=" + b"a" * 30_000_000,
        b"&".join(b"a=1" for _ in range(300_000)),
        b"%" * 130_000,
        b"%" * 900_000,
    ):
        for header in ("", f"Cookie: {cookie}\r\n"):
            head = (
                f"POST /{id_}/model/call HTTP/1.1\r\nHost: 127.0.0.1:{dashboard.port}\r\n{header}"
                f"Origin: {dashboard.origin}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            with socket.create_connection(("127.0.0.1", dashboard.port), 20) as sender, contextlib.suppress(OSError):
                sender.sendall(head.encode() + body)
                replies.append(int(sender.recv(1000).split()[1]))
    broken = "" if all(status >= 400 for status in replies) else f"some are served: {_statuses(replies)}"
    return Answered(_statuses(replies), broken)


_OTHER_USER = """
import encodings.idna, json, os, socket, sys
folder, path, port, id_ = sys.argv[1:]
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
got = []
try:
    got.append(f"lists {{os.listdir(folder)}}")
except PermissionError:
    pass
with socket.socket(socket.AF_UNIX) as one:
    try:
        one.connect(path)
        one.sendall(b'{{"ask": "restart", "arguments": {{"server": "tame"}}}}\\n')
        said = one.recv(1000)
        if said: got.append(f"is answered {{said!r}}")
    except OSError:
        pass
for page in (f"/{{id_}}/home", f"/{{id_}}/servers", f"/{{id_}}/chart.json"):
    with socket.create_connection(("127.0.0.1", int(port))) as one:
        one.sendall(f"GET {{page}} HTTP/1.1\\r\\nHost: 127.0.0.1:{{port}}\\r\\nConnection: close\\r\\n\\r\\n".encode())
        said = b"".join(iter(lambda: one.recv(65536), b""))
        if b" 401 " not in said[:40] or b"tame" in said: got.append(f"reads {{page}}")
print(json.dumps(got))
"""


def _be_another_user(dashboard: DashboardProcess) -> Answered:
    """Asks by the socket and the port as another user; then again with the folder and the socket left open to all."""
    if os.geteuid() != 0:
        raise SkippedError("only root can become another user")
    (path,) = dashboard.sockets.glob("*.sock")
    words = [str(dashboard.sockets), str(path), str(dashboard.port), dashboard.id]
    code = _OTHER_USER.format(nobody=_NOBODY)

    def attempt() -> list[str]:
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=30)
        if done.returncode:
            raise RuntimeError(done.stderr[-500:])
        found: list[str] = json.loads(done.stdout)
        return found

    got = attempt()
    parents = [dashboard.sockets.parents[0], dashboard.sockets.parents[1]]
    modes = [(one, one.stat().st_mode & 0o777) for one in (*parents, dashboard.sockets, path)]
    for one, _ in modes:
        one.chmod(0o777)
    got += [f"with open folders {text}" for text in attempt() if not text.startswith("lists")]
    for one, mode in modes:
        one.chmod(mode)
    return Answered("nothing is answered, nothing read" if not got else "it gets in", "; ".join(got))


# In a browser


@contextlib.contextmanager
def _foreign_page() -> Iterator[int]:
    """Serves a page of somebody else, at another port of this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>prizes</title><body>")

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def _browse(attack: Callable[[DashboardProcess, Page, int], Any]) -> Callable[[DashboardProcess], Answered]:
    """Makes an attack in Chromium, in a tab whose user is logged in."""

    def run(dashboard: DashboardProcess) -> Answered:
        if chromium_program.COMMAND is None:
            raise SkippedError("chromium is not installed")

        async def browse(port: int) -> Answered:
            async with chromium("--host-resolver-rules=MAP evil.example 127.0.0.1") as browser:
                page = await browser.open_page()
                await page.visit(f"{dashboard.origin}/login?code={dashboard.await_code()}")
                if "tame" not in await page.run("fetch('servers').then((one) => one.text())"):
                    raise RuntimeError("the user is not logged in")
                found: Answered = await attack(dashboard, page, port)
                await page.visit("about:blank")
                return found

        with _foreign_page() as port:
            return asyncio.run(browse(port))

    return run


_FOREIGN = """
(async (origin, id) => {
  const got = [];
  const reads = (name, asked) => asked.then(
    (text) => { if (text.includes("tame") || text.includes("before")) got.push(`reads ${name}`); }, () => null);
  for (const credentials of ["include", "omit"]) {
    for (const path of ["home", "servers", "chart.json", "model", "calls"]) {
      await reads(path, fetch(`${origin}/${id}/${path}`, { credentials }).then((one) => one.text()));
    }
  }
  for (const [path, fields] of [["servers/restart", { server: "tame" }],
      ["review/approve", { server: "evil", place: "/tools/first", seen: "" }],
      ["model/call", { name: "tame.rest", arguments: "{}" }]]) {
    const body = new URLSearchParams({ ...fields, csrf: "" });
    await fetch(`${origin}/${id}/${path}`, { method: "POST", mode: "no-cors", credentials: "include", body })
      .catch(() => null);
  }
  await new Promise((done) => {
    const events = new EventSource(`${origin}/${id}/events`, { withCredentials: true });
    events.onopen = () => { got.push("hears events"); done(); };
    events.onerror = () => { events.close(); done(); };
  });
  await import(`${origin}/static/dashboard.js`).then(() => got.push("imports a script"), () => null);
  const form = document.createElement("form");
  form.method = "post";
  form.action = `${origin}/${id}/servers/restart`;
  form.target = "_blank";
  form.innerHTML = '<input name="server" value="tame"><input name="csrf" value="">';
  document.body.append(form);
  form.submit();
  await new Promise((done) => setTimeout(done, 500));
  return got;
})"""


async def _attack_from_origins(dashboard: DashboardProcess, page: Page, port: int) -> Answered:
    """Reads and changes by scripts and forms of pages at other names and at another port of the same name."""
    got: list[str] = []
    for name in ("evil.example", "localhost", "127.0.0.1"):
        await page.visit(f"http://{name}:{port}/")
        arguments = f"{json.dumps(dashboard.origin)}, {json.dumps(dashboard.id)}"
        got += [f"{name} {text}" for text in await page.run(f"{_FOREIGN}({arguments})")]
    await page.visit(f"http://evil.example:{dashboard.port}/{dashboard.id}/home")
    if "tame" in await page.text("body"):
        got.append("a name that was bound anew reads pages")
    if any(one["client"] == "(you)" for one in (await asyncio.to_thread(dashboard.ask, "calls"))["calls"]):
        got.append("a tool is called")
    return Answered("nothing is read, nothing done" if not got else "it gets through", "; ".join(got))


async def _frame(dashboard: DashboardProcess, page: Page, port: int) -> Answered:
    """Puts the pages into frames, to have the user click on them."""
    shown = []
    for name in ("localhost", "127.0.0.1"):
        await page.visit(f"http://{name}:{port}/")
        for path in ("home", "servers", "review/diff?server=evil&place=/tools/first"):
            address = json.dumps(f"{dashboard.origin}/{dashboard.id}/{path}")
            await page.run(
                f"new Promise((done) => {{ const frame = document.createElement('iframe'); frame.onload = done; "
                f"frame.src = {address}; document.body.append(frame); }})"
            )
        tree = (await page.ask("Page.getFrameTree"))["frameTree"]
        shown += [one["frame"]["url"] for one in tree.get("childFrames", ()) if dashboard.origin in one["frame"]["url"]]
    return Answered("no frame shows a page" if not shown else "frames show pages", "; ".join(shown))


async def _show_hostile_texts(dashboard: DashboardProcess, page: Page, port: int) -> Answered:
    """Opens every page of what a hostile server says: names, descriptions, stderr, results, a change."""
    id_ = next(row["id"] for row in (await asyncio.to_thread(_tools, dashboard)) if row["server"] == "evil")
    paths = (
        *(
            "home",
            "servers",
            "servers?name=evil",
            "model",
            "model?query=script+alert",
            "model/tools",
            "calls",
            "review",
        ),
        "review/diff?server=evil&place=/tools/first",
    )
    root = f"{dashboard.origin}/{dashboard.id}"
    faults: list[str] = []
    await page.visit(f"{root}/calls")
    await page.follow("button", "Show those of new calls")
    await asyncio.to_thread(dashboard.call, "execute", {"operation": id_, "params": {}})
    await page.wait_for("document.querySelector('#calls tbody tr')")
    seen = 0
    for path in paths:
        await page.visit(f"{root}/{path}")
        seen += (await page.run("document.body.innerText")).count("alert(1)")
        if await page.count("main script, main img, main svg, main iframe, main meta, main form[action^='/servers']"):
            faults.append(f"{path} has elements of the server")
        if await page.run(r"/[\u202a-\u202e\u2066-\u2069\u001b\u200b]/.test(document.documentElement.outerHTML)"):
            faults.append(f"{path} has characters that hide or reorder")
    elsewhere = {one for one in page.requests if not one.startswith((f"{dashboard.origin}/", "about:"))}
    if page.dialogs or elsewhere:
        faults.append(f"it ran {page.dialogs}, it sent {sorted(elsewhere)}")
    if not seen:
        faults.append("the texts of the server were not shown, so nothing was tried")
    printed = dashboard.said
    if "\x1b]0;owned" in printed or "\u202e" in printed:
        faults.append("the terminal was sent its control characters")
    return Answered(f"its texts are shown {seen} times, as texts", "; ".join(faults))


def _tools(dashboard: DashboardProcess) -> list[Any]:
    found: list[Any] = dashboard.ask("tools")["tools"]
    return [one for one in found if not one["hidden"]]


DASHBOARD_ATTACKS = (
    DashboardAttack("dashboard-origin", "dashboard: scripts and forms of other origins", _browse(_attack_from_origins)),
    DashboardAttack("dashboard-rebinding", "dashboard: other names of this machine, with the cookie", _rebind),
    DashboardAttack("dashboard-frame", "dashboard: pages in frames of others", _browse(_frame)),
    DashboardAttack("dashboard-user", "dashboard: another user of the machine", _be_another_user),
    DashboardAttack("dashboard-code", "dashboard: a used code, and 3,000 guesses", _use_codes),
    DashboardAttack(
        "dashboard-texts", "dashboard: a server that says HTML, script, ANSI, bidi", _browse(_show_hostile_texts)
    ),
    DashboardAttack("dashboard-streams", "dashboard: 300 connections, half of them event streams", _hold_open),
    DashboardAttack("dashboard-forms", "dashboard: forms of 30 MB, and of 300,000 fields", _post_large),
)
