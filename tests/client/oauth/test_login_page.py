"""How the page to log in at is opened by default."""

import threading
import webbrowser

import pytest

from deltamcp.client.oauth.login_page import LoginPage, open_in_browser

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


async def test_a_page_for_another_device_is_only_told(capsys, monkeypatch):
    monkeypatch.setenv("BROWSER", "some")
    monkeypatch.setattr(webbrowser, "open", lambda url: pytest.fail("a browser was opened"))
    await open_in_browser(LoginPage("https://as.example/device", "WDJB-MJHT"))
    assert capsys.readouterr().err == "Log in at https://as.example/device with the code WDJB-MJHT\n"
