"""How the page to log in at is opened by default."""

import threading
import webbrowser

import pytest

from deltamcp.client.oauth.oauth import LoginPage, find_warnings, open_in_browser

PAGE = LoginPage("https://as.example/authorize?x=y", redirect_uri="http://127.0.0.1:7777/callback")


async def test_a_browser_that_runs_in_the_foreground_is_not_waited_for(monkeypatch, capsys):
    opened, closed, ended = threading.Event(), threading.Event(), threading.Event()

    def open_until_closed(url: str) -> None:
        opened.set()
        closed.wait(30)
        ended.set()

    monkeypatch.setenv("BROWSER", "some")
    monkeypatch.setattr(webbrowser, "open", open_until_closed)
    await open_in_browser(PAGE)
    assert not ended.is_set() and opened.wait(30)
    closed.set()
    assert capsys.readouterr().err == f"Log in at this page: {PAGE.url}\n"


@pytest.mark.parametrize("variables", [{}, {"SSH_CONNECTION": "x"}])
async def test_without_a_browser_the_user_is_told_where_one_must_run(variables, monkeypatch, capsys):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", "linux")
    await open_in_browser(PAGE)
    assert "ssh -L 7777:127.0.0.1:7777" in capsys.readouterr().err


async def test_the_user_reads_what_the_page_asks_for_and_what_to_be_careful_of(capsys, monkeypatch):
    monkeypatch.setenv("BROWSER", "some")
    monkeypatch.setattr(webbrowser, "open", lambda url: None)
    await open_in_browser(
        LoginPage("https://as.example/authorize", scopes=("read", "write"), warnings=("It is late.",))
    )
    assert capsys.readouterr().err.splitlines()[1] == "It asks for the scopes read, write. Careful: It is late."


def test_many_scopes_are_counted_and_not_all_written():
    notice = LoginPage("https://as.example/", scopes=tuple(f"scope{n:05}" for n in range(100))).notice
    assert notice.startswith("It asks for the scopes scope00000, ") and "(100 in all)" in notice and len(notice) < 600


@pytest.mark.parametrize(
    ("page", "earlier", "told"),
    [
        (LoginPage("https://as.example/a"), "", []),
        (LoginPage("https://as.example:443/a"), "https://as.example/t", []),
        (LoginPage("https://honest.example/a"), "", ["The page is at honest.example"]),
        (LoginPage("https://as.example:8443/a"), "", ["The page is at as.example:8443"]),
        (LoginPage("https://as.example/a", "X", "https://q.example/?c=X"), "", ["The page is at q.example"]),
        (LoginPage("https://q.example/a", "X", "https://q.example/a"), "", ["The page is at q.example"]),
        (
            LoginPage("https://as.example/a"),
            "https://old.example",
            ["The server had you log in at https://old.example"],
        ),
    ],
)
def test_a_page_elsewhere_and_an_issuer_that_changed_are_warned_of(page, earlier, told):
    warnings = find_warnings(page, "https://as.example/t", earlier)
    assert len(warnings) == len(told) and all(map(str.startswith, warnings, told))


async def test_a_page_for_another_device_is_only_told(capsys, monkeypatch):
    monkeypatch.setenv("BROWSER", "some")
    monkeypatch.setattr(webbrowser, "open", lambda url: pytest.fail("a browser was opened"))
    await open_in_browser(LoginPage("https://as.example/device", "WDJB-MJHT"))
    assert capsys.readouterr().err == "Log in at https://as.example/device with the code WDJB-MJHT\n"
