"""A shop whose canaries stand at every kind of verdict, served by the real API."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import Engine

from storage.postgres.engine import open_engine
from storage.tenants.keys import Role
from storage.tenants.sign_ins import create_link
from tests.browser.dashboard.gallery import Gallery, hung
from tests.conftest import Store
from tests.processes.api_process import ApiProcess
from tests.world import ON_ORDERS, World

DAY = 24 * 60.0
# For so many minutes each canary has traffic.
UNTIL = 300.0
OLD, HELPS, HARMS, MIXED, OPEN = (
    "a1b2c3d4e5",
    "b0b0b0b0b1",
    "c0ffee0123",
    "dadada4567",
    "feed5ea123",
)
GRAPH = {
    "schema_version": "1",
    "routes": [
        {"path": "/", "files": ["app/page.tsx", "components/Hero.tsx"]},
        {"path": "/products/[id]", "files": ["app/products/[id]/page.tsx", "components/Price.tsx"]},
        {"path": "/cart", "files": ["app/cart/page.tsx", "components/Price.tsx", "lib/cart.ts"]},
        {
            "path": "/checkout/[id]",
            "files": ["app/checkout/[id]/page.tsx", "components/Price.tsx", "lib/cart.ts"],
        },
    ],
}


class Served(World):
    def link(self, role: Role = Role.READ) -> str:
        code = self.in_store(lambda connection: create_link(connection, self.project_id, role))
        return f"{str(self.client.base_url).rstrip('/')}/dashboard/sign-in#{code}"


@dataclass(kw_only=True)
class Pages:
    """The service: a shop with its experiments and deploys, a gallery, and an empty project."""

    url: str
    served: Served
    experiments: dict[str, str]
    deploys: dict[str, str]
    bare: Served
    gallery: Gallery

    def path(self, name: str) -> str:
        return f"/dashboard/experiments/{self.experiments[name]}"


@contextmanager
def the_world(database_url: str) -> Iterator[Pages]:
    """The world, and the process that serves it."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        engine = open_engine(database_url)
        stack.callback(engine.dispose)
        api = stack.enter_context(
            ApiProcess(log=Path(folder) / "api.log", database_url=database_url)
        )
        api.start()
        client = stack.enter_context(httpx2.Client(base_url=api.url, timeout=60))
        served = _served(engine, database_url, client, "shop")
        deploys = _deploys(served)
        gallery = hung(_served(engine, database_url, client, "lab"))
        experiments = _traffic(served)
        gallery.again()
        bare = _served(engine, database_url, client, "bare")
        yield Pages(
            url=api.url,
            served=served,
            experiments=experiments,
            deploys=deploys,
            bare=bare,
            gallery=gallery,
        )


def _served(engine: Engine, url: str, client: Any, name: str) -> Served:
    store = Store(url=url, engine=engine)
    served = Served.new(store, client, name, registration=dict(ON_ORDERS))
    served.settings(rate_limits={"per_key": 10**9, "per_address": 10**9}, locked=[])
    return served


def _deploys(story: World) -> dict[str, str]:
    changes = {
        HELPS: ("Shorter checkout: one page instead of three", "ada", 0),
        HARMS: ("Lazy-load the payment form", "grace", 2 * DAY),
        MIXED: ("Ask for the phone number later", "barbara", 4 * DAY),
        OPEN: ("Show delivery dates in the cart", "katherine", 6 * DAY),
    }
    first = story.deploy(OLD, minutes=-DAY, commit={"message": "Open the shop"}, graph=GRAPH)
    deploys = {"old": first["deploy_id"]}
    for sha, (message, author, minutes) in changes.items():
        body = {
            "base_commit": OLD,
            "files": [
                {"filename": "lib/cart.ts", "status": "modified", "additions": 48, "deletions": 12},
                {"filename": "components/Price.tsx", "status": "modified", "additions": 3},
                {"filename": "docs/notes.md", "status": "added", "additions": 20, "deletions": 0},
            ],
        }
        commit = {
            "message": f"{message}\n\nSee the notes.",
            "author": author,
            "branch": "main",
            "url": f"https://git.example.com/shop/commit/{sha}",
            "pull_request": 412,
        }
        deploy = story.deploy(sha, minutes=minutes, allocation=0.5, commit=commit, diff=body)
        deploys[sha] = deploy["deploy_id"]
        # Before the next comes, this canary is withdrawn; the last goes on.
        if sha != OPEN:
            story.deploy(sha, minutes=minutes + DAY, allocation=0, commit=commit, diff=body)
    return deploys


def _traffic(story: World) -> dict[str, str]:
    route = {"route": "/checkout/7"}
    rates = {
        HELPS: ({"order": 0.10, "error": 0.01}, {"order": 0.25, "error": 0.01}),
        HARMS: ({"order": 0.20, "error": 0.01}, {"order": 0.06, "error": 0.01}),
        MIXED: ({"order": 0.10, "error": 0.01}, {"order": 0.25, "error": 0.12}),
        OPEN: ({"order": 0.10, "error": 0.01}, {"order": 0.11, "error": 0.01}),
    }
    for number, (sha, (old, new)) in enumerate(rates.items()):
        start = 2 * DAY * number
        # Closely served, so that there are few blocks and the world is made in seconds.
        for commit, rates_of_arm in ((OLD, old), (sha, new)):
            story.crowd(commit, start=start, minutes=UNTIL, units=400, rates=rates_of_arm, **route)
    story.send()
    worth = {"name": "order", "value_per_conversion": 40}
    guarded = {"guardrails": ["error"], "routes": ["/checkout/[id]"]}
    experiments = {
        name: story.register(treatment_commit=sha, target_metric=worth, **guarded)
        for name, sha in (("keep", HELPS), ("rollback", HARMS), ("iterate", MIXED), ("open", OPEN))
    }
    story.tick(minutes=6 * DAY + UNTIL + 180)
    return experiments
