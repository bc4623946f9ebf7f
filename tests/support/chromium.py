"""Chromium, by its debugging protocol over two pipes: pages as users see them, and whatever goes wrong in them."""

import asyncio
import base64
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from tests.support.conditions import HANG_SECONDS

COMMAND = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
"""None where there is no such browser."""
_READS, _WRITES = 3, 4
"""The descriptors at which Chromium reads commands and writes what happens."""
_KEYS = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "PageDown": ("PageDown", 34, ""),
    "End": ("End", 35, ""),
}
"""The code of a key, its number and what it types."""


class Screen(NamedTuple):
    """What a page is shown on."""

    width: int
    height: int = 900
    scheme: str = "light"


class Chromium:
    """A browser without a window."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.WriteTransport) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._pages: dict[str, Page] = {}
        self._listening = asyncio.ensure_future(self._listen())

    async def _listen(self) -> None:
        while True:
            message = json.loads((await self._reader.readuntil(b"\0"))[:-1])
            if "id" in message:
                reply = self._replies.pop(message["id"])
                if reply.done():
                    continue
                if "error" in message:
                    reply.set_exception(RuntimeError(message["error"]["message"]))
                else:
                    reply.set_result(message["result"])
            elif page := self._pages.get(message.get("sessionId", "")):
                page.note(message["method"], message["params"])

    async def ask(self, method: str, session: str = "", **params: Any) -> Any:
        """Returns the answer to a command of the protocol."""
        number = next(self._ids)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        self._writer.write(json.dumps(message).encode() + b"\0")
        async with asyncio.timeout(HANG_SECONDS):
            return await reply

    async def open_page(self) -> "Page":
        """Opens a tab that shares no cookies with the others."""
        context = (await self.ask("Target.createBrowserContext"))["browserContextId"]
        target = await self.ask("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Network", "Log"):
            await page.ask(f"{domain}.enable")
        return page

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.wait([self._listening])
        self._writer.close()


class Page:
    """A tab."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session
        self._loads = 0
        self._loaded = asyncio.Condition()
        self.faults: list[str] = []
        """Errors and warnings of its console, uncaught exceptions, and what its policy has refused."""
        self.requests: list[str] = []
        """The addresses that it asked for."""
        self._answering: set[asyncio.Future[Any]] = set()
        self.dialogs: list[str] = []
        """What scripts have asked a user by dialogs."""

    def note(self, method: str, params: Mapping[str, Any]) -> None:
        """Notes what the browser says of the tab."""
        match method:
            case "Page.loadEventFired":
                self._loads += 1
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.faults.append(str([one.get("value", one.get("description")) for one in params["args"]]))
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.faults.append(details.get("exception", {}).get("description") or details["text"])
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.faults.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Page.javascriptDialogOpening":
                self.dialogs.append(params["message"])
                self._answering.add(asyncio.ensure_future(self.ask("Page.handleJavaScriptDialog", accept=False)))
            case _:
                pass

    async def ask(self, method: str, **params: Any) -> Any:
        return await self._browser.ask(method, self._session, **params)

    async def show_on(self, screen: Screen) -> None:
        """Gives it a size and a colour scheme."""
        await self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=screen.width,
            height=screen.height,
            deviceScaleFactor=1,
            mobile=False,
        )
        await self.ask(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": screen.scheme}]
        )

    async def visit(self, url: str) -> None:
        """Goes to an address, and waits until the page is loaded."""
        async with self.loads():
            await self.ask("Page.navigate", url=url)

    @contextlib.asynccontextmanager
    async def loads(self) -> AsyncIterator[None]:
        """Waits, after the block, for the page to which that leads."""
        before = self._loads
        yield
        async with asyncio.timeout(HANG_SECONDS):
            while self._loads == before:  # noqa: ASYNC110 - what the browser says sets no event
                await asyncio.sleep(0.005)

    async def run(self, expression: str) -> Any:
        """Returns the value of an expression of JavaScript, of which promises are awaited."""
        done = await self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"].get("exception", {}).get("description", "failed"))
        return done["result"].get("value")

    async def wait_for(self, condition: str) -> None:
        """Waits until an expression of JavaScript is true."""
        async with asyncio.timeout(HANG_SECONDS):
            while not await self.run(f"!!({condition})"):  # noqa: ASYNC110 - what a page does sets no event
                await asyncio.sleep(0.02)

    async def text(self, selector: str = "main") -> str:
        """Returns what an element says."""
        return cast(str, await self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def count(self, selector: str) -> int:
        return cast(int, await self.run(f"document.querySelectorAll({json.dumps(selector)}).length"))

    async def click(self, selector: str, text: str = "") -> None:
        """Presses the mouse on the first element of a selector that has a text in it."""
        where = await self.run(
            f"(() => {{ const found = [...document.querySelectorAll({json.dumps(selector)})]"
            f".find((one) => one.textContent.includes({json.dumps(text)}));"
            "if (!found) return null; found.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const box = found.getClientRects()[0];"
            "return {x: box.x + box.width / 2, y: box.y + box.height / 2}; })()"
        )
        if where is None:
            raise AssertionError(f"There is no {selector} with {text!r}: {(await self.text('body'))[:2000]}")
        for kind in ("mousePressed", "mouseReleased"):
            await self.ask("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)

    async def follow(self, selector: str, text: str = "") -> None:
        """Clicks on what leads to another page, and waits for that."""
        async with self.loads():
            await self.click(selector, text)

    async def type(self, text: str) -> None:
        """Types into what has the focus."""
        await self.ask("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        code, number, typed = _KEYS[key]
        given = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        await self.ask("Input.dispatchKeyEvent", type="keyDown", **given, **({"text": typed} if typed else {}))
        await self.ask("Input.dispatchKeyEvent", type="keyUp", **given)

    async def picture(self, path: Path, *, whole: bool = True) -> None:
        """Writes a picture of the page, all of it or what the screen shows."""
        shot = await self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextlib.asynccontextmanager
async def chromium(*options: str) -> AsyncIterator[Chromium]:
    """Starts a browser for a block."""
    assert COMMAND is not None, "whoever starts a browser has looked whether there is one"
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command_end, command_pipe = os.pipe()
        event_pipe, event_end = os.pipe()
        words = [
            COMMAND,
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--force-color-profile=srgb",
            "--hide-scrollbars",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),  # Chromium starts no sandbox as root
            *options,
            "about:blank",
        ]
        # Above 4, so that neither is overwritten by the other.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (command_end, event_end)]
        null = os.open(os.devnull, os.O_RDWR)
        placed = [(ends[0], _READS), (ends[1], _WRITES), (null, 0), (null, 1), (null, 2)]
        pid = await asyncio.to_thread(
            os.posix_spawn,
            COMMAND,
            words,
            {**os.environ, "HOME": profile},
            file_actions=[(os.POSIX_SPAWN_DUP2, end, place) for end, place in placed],
            setsid=True,
        )
        for end in (command_end, event_end, *ends, null):
            os.close(end)
        reader = asyncio.StreamReader(limit=2**28)
        read_side, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(event_pipe, "rb")
        )
        write_side, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(command_pipe, "wb"))
        browser = Chromium(reader, write_side)
        try:
            await browser.ask("Browser.getVersion")
            yield browser
        finally:
            await browser.close()
            read_side.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            await asyncio.to_thread(os.waitpid, pid, 0)
