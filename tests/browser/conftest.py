"""A Chromium for the session, and a page of a visitor's own for each test."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.other_site import EVIL, REBOUND
from tests.processes.api_process import eventually

# As distributions name it.
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    # Other sites, as near as can be: nothing between them and us but what the browser holds.
    f"--host-resolver-rules=MAP {EVIL} 127.0.0.1, MAP {REBOUND} 127.0.0.1",
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"),
    *("--disable-background-networking", "--disable-component-update", "--no-first-run"),
    # Playwright waits for a page's load, which a page out of that cache never has.
    "--disable-back-forward-cache",
    # Each visitor's profile would start a second process, for a page that never comes.
    "--disable-features=SpareRendererForSitePerProcess,Translate,MediaRouter,OptimizationHints",
    *("--disable-extensions", "--disable-sync", "--disable-default-apps", "--disable-breakpad"),
    # Tests are visitors that nobody sees: their pages are no less alive for that.
    *("--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding"),
)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory) -> Iterator[str]:
    """The address of a Chromium that lives as long as the tests (of a worker).

    Playwright's own launch would keep an event loop running in this thread for just as long, and
    no other test could run a loop.
    """
    chromium = next(filter(None, map(shutil.which, _NAMES)), None)
    if chromium is None:
        pytest.skip("there is no Chromium on this machine (Debian: apt-get install chromium)")
    profile = tmp_path_factory.mktemp("chromium")
    with (profile / "log").open("wb") as log:
        process = subprocess.Popen(
            [chromium, *_ARGUMENTS, f"--user-data-dir={profile}", "about:blank"],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://127.0.0.1:{eventually(lambda: _port(process, profile))}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def _port(process: subprocess.Popen[bytes], profile: Path) -> str:
    assert process.poll() is None, (profile / "log").read_text()[-4000:]
    port_file = profile / "DevToolsActivePort"
    port, written, _ = port_file.read_text().partition("\n") if port_file.exists() else ("", "", "")
    return port if written else ""


@pytest.fixture(scope="module")
def browser(chromium) -> Iterator[Browser]:
    """The session's browser, as the tests of a module hold it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.connect_over_cdp(chromium)
        yield browser
        browser.close()


@pytest.fixture
def new_context(browser) -> Iterator[Callable[..., BrowserContext]]:
    """Makes visitors with cookies and a memory of their own; Playwright's options hold."""
    made: list[BrowserContext] = []

    def make(**options: Any) -> BrowserContext:
        made.append(browser.new_context(**options))
        return made[-1]

    yield make
    for context in made:
        context.close()


@pytest.fixture
def page(new_context) -> Page:
    return new_context().new_page()
