"""The world that a browser looks at, and pages of somebody who is signed in."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.browser.dashboard.world import Pages, Served, the_world
from tests.processes.server_folder import migrated_server, server_folder


@pytest.fixture(scope="session")
def world() -> Iterator[Pages]:
    with (
        server_folder() as folder,
        migrated_server(folder) as postgres,
        the_world(postgres.url) as world,
    ):
        yield world


@pytest.fixture
def context(browser) -> Iterator[Callable[..., BrowserContext]]:
    """Makes browsers' profiles, in which every fault of a page fails the test."""
    made: list[BrowserContext] = []
    faults: list[str] = []

    def new(**options: Any) -> BrowserContext:
        profile = browser.new_context(**options)
        profile.on("weberror", lambda error: faults.append(str(error.error)))
        profile.on(
            "console",
            lambda message: faults.append(message.text) if message.type == "error" else None,
        )
        made.append(profile)
        return profile

    yield new
    for profile in made:
        profile.close()
    assert [fault for fault in faults if "status of 4" not in fault] == []


@pytest.fixture
def signed_in(context, world) -> Callable[..., Page]:
    """Opens a profile that signed in to a project by a link, with a page of it."""

    def opened(served: Served | None = None, **options: Any) -> Page:
        page = context(**options).new_page()
        page.goto((served or world.served).link())
        page.wait_for_url(f"{world.url}/dashboard")
        return page

    return opened
