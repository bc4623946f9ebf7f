"""The listener for the browser that comes back: one request counts, and only the right one."""

import asyncio
import contextlib
import socket
from urllib.parse import urlsplit

import pytest

from deltamcp.client.oauth import grants
from deltamcp.client.oauth.grants import RedirectListener, listen_for_redirect
from deltamcp.errors import UnauthorizedError

STATE = "s" * 43


async def ask(listener: RedirectListener, target: str, verb: str = "GET", padding: str = "") -> bytes:
    port = int(listener.redirect_uri.split(":")[2].partition("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{verb} {target} HTTP/1.1\r\nhost: 127.0.0.1\r\n{padding}\r\n".encode())
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_the_right_request_is_returned_and_its_page_tells_the_user_to_return():
    async with listen_for_redirect("", "", STATE) as listener:
        assert listener.redirect_uri.startswith("http://127.0.0.1:")
        page = await ask(listener, f"/callback?code=c0de&state={STATE}")
        assert page.startswith(b"HTTP/1.1 200") and b"return to the program" in page and b"c0de" not in page
        assert b"no-store" in page and b"no-referrer" in page
        assert await listener.wait(5) == f"/callback?code=c0de&state={STATE}"


@pytest.mark.parametrize(
    ("verb", "target"),
    [
        ("GET", "/favicon.ico"),
        ("GET", f"/other?code=x&state={STATE}"),
        ("GET", "/callback"),
        ("GET", "/callback?code=x&state=wrong"),
        ("GET", f"/callback?code=x&state={STATE}&state={STATE}"),
        ("POST", f"/callback?code=x&state={STATE}"),
        ("GET", f"http://127.0.0.1/callback?code=x&state={STATE}"),
    ],
)
async def test_any_other_request_changes_nothing(verb, target):
    async with listen_for_redirect("", "", STATE) as listener:
        assert (await ask(listener, target, verb)).startswith(b"HTTP/1.1 404")
        await ask(listener, f"/callback?code=y&state={STATE}")
        assert await listener.wait(5) == f"/callback?code=y&state={STATE}"


async def test_only_the_first_right_request_counts():
    async with listen_for_redirect("", "", STATE) as listener:
        await ask(listener, f"/callback?code=first&state={STATE}")
        await ask(listener, f"/callback?code=second&state={STATE}")
        assert "first" in await listener.wait(5)


async def test_a_head_that_is_too_large_is_cut_off():
    async with listen_for_redirect("", "", STATE) as listener:
        assert await ask(listener, "/callback", padding="x" * 100_000) == b""


async def test_connections_that_say_nothing_are_bounded_and_do_not_stop_the_login(monkeypatch):
    monkeypatch.setattr(grants, "_READ_SECONDS", 0.3)
    async with listen_for_redirect("", "", STATE) as listener:
        port = int(listener.redirect_uri.split(":")[2].partition("/")[0])
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        ends = await asyncio.gather(*(reader.read() for reader, _ in silent), return_exceptions=True)
        assert all(end == b"" or isinstance(end, ConnectionError) for end in ends)
        await ask(listener, f"/callback?code=x&state={STATE}")
        assert "code=x" in await listener.wait(5)
        for _, writer in silent:
            writer.close()


async def test_silent_connections_do_not_keep_the_browser_out(monkeypatch):
    """The one that has said nothing for longest makes room."""
    monkeypatch.setattr(grants, "_READ_SECONDS", 600.0)
    async with listen_for_redirect("", "", STATE) as listener:
        port = int(listener.redirect_uri.split(":")[2].partition("/")[0])
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(16)]
        page = await ask(listener, f"/callback?code=x&state={STATE}")
        assert page.startswith(b"HTTP/1.1 200")
        assert "code=x" in await listener.wait(5)
        with contextlib.suppress(ConnectionError):
            assert await silent[0][0].read() == b""
        assert not any(reader.at_eof() for reader, _ in silent[1:])
        for _, writer in silent:
            writer.close()


async def test_nobody_comes_back():
    async with listen_for_redirect("", "", STATE) as listener:
        with pytest.raises(UnauthorizedError, match="Nobody logged in"):
            await listener.wait(0.01)


async def test_the_listener_is_closed_afterwards():
    async with listen_for_redirect("", "", STATE) as listener:
        pass
    with pytest.raises(OSError):
        await ask(listener, "/callback")


async def test_an_earlier_port_is_taken_if_it_is_free_and_another_if_not():
    async with listen_for_redirect("", "", STATE) as listener:
        earlier = listener.redirect_uri
        async with listen_for_redirect("", earlier, STATE) as another:
            assert another.redirect_uri != earlier
    async with listen_for_redirect("", earlier, STATE) as again:
        assert again.redirect_uri == earlier


async def test_a_port_that_the_program_demands_is_that_one_or_an_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        uri = f"http://localhost:{taken.getsockname()[1]}/back"
        with pytest.raises(UnauthorizedError, match="cannot come back"):
            async with listen_for_redirect(uri, "", STATE):
                pass
    async with listen_for_redirect(uri, "", STATE) as listener:
        assert listener.redirect_uri == uri
        await ask(listener, f"/back?code=x&state={STATE}")
        assert "code=x" in await listener.wait(5)


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as trial:
            trial.bind(("::1", 0))
    except OSError:
        return False
    return True


no_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no ::1")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", pytest.param("[::1]", marks=no_ipv6)])
async def test_an_address_without_a_port_is_listened_at_on_a_free_one(host):
    async with listen_for_redirect(f"http://{host}/back", "", STATE) as listener:
        parts = urlsplit(listener.redirect_uri)
        assert parts.port and listener.redirect_uri == f"http://{host}:{parts.port}/back"
        reader, writer = await asyncio.open_connection("::1" if host == "[::1]" else "127.0.0.1", parts.port)
        writer.write(f"GET /back?code=x&state={STATE} HTTP/1.1\r\n\r\n".encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        assert "code=x" in await listener.wait(5)
