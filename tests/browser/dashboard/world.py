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
from storage.tenants.projects import CreatedProject, create_project
from storage.tenants.settings import apply_settings
from storage.tenants.sign_ins import Role, create_link
from tests.browser.dashboard.gallery import Gallery, hung
from tests.conftest import Store
from tests.pipeline.conftest import Story
from tests.processes.api_process import ApiProcess

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


@dataclass(kw_only=True)
class Served:
    """The API as a story speaks to it."""

    store: Store
    client: httpx2.Client
    project: CreatedProject

    def post(self, path: str, body: Any) -> Any:
        kind = "project" if path.startswith("/v1/reward") else "write"
        return self.client.post(path, json=body, headers=self._header(kind), timeout=60)

    def get(self, path: str) -> Any:
        kind = "project" if path.startswith("/v1/reward") else "write"
        return self.client.get(path, headers=self._header(kind))

    def _header(self, kind: str) -> dict[str, str]:
        (key,) = (key for name, key in self.project.keys.items() if name.value == kind)
        return {"X-Service-Project-Key": key}

    def link(self, role: Role = Role.READ) -> str:
        with self.store.engine.begin() as connection:
            code = create_link(connection, self.project.project_id, role)
        return f"{str(self.client.base_url).rstrip('/')}/dashboard/sign-in#{code}"


@dataclass(kw_only=True)
class World:
    """The service: a shop with its experiments and deploys, a gallery, and an empty project."""

    url: str
    served: Served
    story: Story
    experiments: dict[str, str]
    deploys: dict[str, str]
    bare: Served
    gallery: Gallery

    def path(self, name: str) -> str:
        return f"/dashboard/experiments/{self.experiments[name]}"


@contextmanager
def the_world(database_url: str) -> Iterator[World]:
    """The world, and the process that serves it."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        engine = open_engine(database_url)
        stack.callback(engine.dispose)
        api = stack.enter_context(
            ApiProcess(log=Path(folder) / "api.log", database_url=database_url)
        )
        api.start()
        client = stack.enter_context(httpx2.Client(base_url=api.url))
        served = _served(engine, database_url, client, "shop")
        story = Story(service=served, events=[])
        deploys = _deploys(story)
        lab = _served(engine, database_url, client, "lab")
        gallery = hung(Story(service=lab, events=[]))
        experiments = _traffic(story)
        gallery.again()
        bare = _served(engine, database_url, client, "bare")
        yield World(
            url=api.url,
            served=served,
            story=story,
            experiments=experiments,
            deploys=deploys,
            bare=bare,
            gallery=gallery,
        )


def _served(engine: Engine, url: str, client: httpx2.Client, name: str) -> Served:
    with engine.begin() as connection:
        project = create_project(connection, name)
        limits = {"per_key": 10**9, "per_address": 10**9}
        apply_settings(connection, project.project_id, {"rate_limits": limits, "locked": []})
    return Served(store=Store(url=url, engine=engine), client=client, project=project)


def _deploys(story: Story) -> dict[str, str]:
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
        # Before the next one comes, this one is withdrawn; the last one goes on.
        if sha != OPEN:
            story.deploy(sha, minutes=minutes + DAY, allocation=0, commit=commit, diff=body)
    return deploys


def _traffic(story: Story) -> dict[str, str]:
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
    story.walk(minutes=6 * DAY + UNTIL + 180)
    return experiments
