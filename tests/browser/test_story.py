"""The whole story in a browser: from an empty project to a verdict, and what to do then."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import Connection, func, select

from api.app import create_app
from api.runtime.settings import ApiSettings
from benchmarks.server.running import running_service
from storage.schema.tables import runtime_events
from storage.tenants.projects import create_project
from tests.browser.story.checkout import NEW, OLD, checkout_of
from tests.browser.story.engineer import Engineer
from tests.browser.story.shop import Shop
from tests.browser.story.visitors import Visitors
from tests.conftest import Store
from tests.processes.api_process import eventually
from tests.processes.served import Served
from tests.stores.pipeline_run import run_pipeline

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not all(map(shutil.which, ("bash", "curl", "git"))), reason="bash, curl or git is not here"
    ),
]

BLOCK = WINDOW = timedelta(minutes=5)
GRACE = timedelta(seconds=15)
SECRET = b"a secret of the tests, long enough"
# What a tick of the service and a poll of the page take at most, on a machine that is busy.
PATIENCE_MS = 180_000


@dataclass(kw_only=True)
class Story:
    engineer: Engineer
    shop: Shop
    visitors: Visitors


Told = Callable[..., Story]


@pytest.fixture
def folder() -> Iterator[Path]:
    # pytest's tmp_path can be entered by its owner alone, and root's server runs as nobody.
    made = Path(tempfile.mkdtemp(prefix="deploy-reward-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def new_story(new_context, folder) -> Iterator[Told]:
    """Begins the story on a service, with a project's keys and what its commands need."""
    with ExitStack() as stack:

        def begin(service: str, keys: dict[str, str], **store: str) -> Story:
            (folder / "shop").mkdir()
            checkout = checkout_of(folder / "shop")
            chance = np.random.default_rng(4)
            shop = Shop(
                checkout=checkout, service=service, key=keys["public"], chance=chance.spawn(1)[0]
            )
            served = stack.enter_context(Served(app=shop, host="localhost"))
            engineer = Engineer(
                checkout=checkout,
                page=new_context().new_page(),
                service=service,
                keys=keys,
                store=store,
                shots=os.environ.get("STORY_SHOTS"),
            )
            visitors = Visitors(context=new_context(), url=served.url, chance=chance)
            return Story(engineer=engineer, shop=shop, visitors=visitors)

        yield begin


def signs_in(engineer: Engineer) -> None:
    link = engineer.types(
        'deploy-reward dashboard --owner --url "$SERVICE_API_URL"', **engineer.store
    )
    engineer.page.goto(link.strip())
    engineer.page.wait_for_url(f"{engineer.service}/dashboard")


def finds_an_empty_project(story: Story) -> None:
    engineer = story.engineer

    def is_empty() -> bool:
        engineer.page.reload()
        return "No event has come yet." in engineer.page.locator("main").inner_text()

    eventually(is_empty, seconds=PATIENCE_MS / 1000)
    for text in ("0 of 11 right", "Nothing was deployed yet"):
        expect(engineer.page.locator("main")).to_contain_text(text)
    lines = engineer.page.locator(".checks li")
    expect(lines).to_have_count(11)
    for line in lines.all():
        expect(line).to_be_visible()
    engineer.keeps("01-empty-project")


def sets_up(engineer: Engineer, shop_url: str) -> None:
    page = engineer.page

    def saved(button: str, name: str) -> None:
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.get_by_role("status")).to_have_text("Saved.")
        engineer.keeps(name)

    page.get_by_role("link", name="Settings").click()
    page.get_by_label("Default metric").fill("order_placed")
    for folded in ("How it is decided", "Which events and senders count"):
        page.get_by_text(folded).first.click()
    page.get_by_label("Grace, in seconds").fill(str(GRACE.seconds))
    page.get_by_label("Allowed origins").fill(shop_url)
    saved("Save settings", "02-settings")

    tabs = page.get_by_label("Settings", exact=True)
    tabs.get_by_role("link", name="Metrics").click()
    page.get_by_label("Name", exact=True).fill("order_placed")
    page.get_by_label("Window, in seconds").fill(str(WINDOW.seconds))
    saved("Add metric", "03-metrics")
    # Few visitors can't show that errors didn't rise; that they did would show all the same.
    page.get_by_text("New metric").click()
    new = page.locator("details.new")
    new.get_by_label("Name", exact=True).fill("error")
    new.locator("details.more > summary").click()
    new.get_by_label("Margin").fill("none")
    saved("Add metric", "03-metrics")

    tabs.get_by_role("link", name="Values").click()
    page.get_by_label("Metric", exact=True).fill("order_placed")
    page.get_by_label("Value of a conversion").fill("40.5")
    saved("Add value", "04-values")


def records_what_is_out_there(story: Story) -> None:
    engineer = story.engineer
    engineer.opens("")
    answer = engineer.follows("The first request to send")
    assert answer["deploy"]["commit"]["sha"] == engineer.checkout.base
    engineer.page.reload()
    story.shop.element = engineer.page.get_by_label("The element for your pages").inner_text()
    engineer.keeps("05-what-next")


# As docs/ci.md has it.
CANARY = """
curl -sSfO "$SERVICE_API_URL/route-graph.mjs"
node route-graph.mjs > graph.json
gh api "repos/shop/shop/compare/$BASE...$SHA" |
  SERVICE_PROJECT_KEY=$WRITE_KEY deploy-reward deploy "$SHA" --base "$BASE" --diff - \
    --graph graph.json --allocation 0.5 --message "$(git log -1 --format=%B)" --author Ada
"""


def sends_out_a_canary(story: Story) -> str:
    engineer, checkout = story.engineer, story.engineer.checkout
    checkout.look_at(checkout.change)
    deploy = engineer.types(CANARY, BASE=checkout.base, SHA=checkout.change).strip()
    story.shop.share = 5000
    engineer.page.get_by_role("link", name="Deploys", exact=True).click()
    engineer.page.get_by_role("link", name="Order in one step").click()
    assert engineer.page.url.endswith(deploy)
    reach = engineer.page.get_by_label("Changed files that reach /checkout/[id]")
    assert reach.inner_text() == "components/OrderButton.tsx"
    engineer.keeps("06-deploy")
    return deploy


def registers_it(engineer: Engineer) -> str:
    experiment = engineer.follows("The request that registers this deploy")["experiment_id"]
    engineer.page.reload()
    engineer.page.get_by_role("link", name="Order in one step").click()
    verdict = engineer.page.get_by_label("Verdict", exact=True)
    expect(verdict).to_contain_text("Nothing was measured yet")
    expect(engineer.page.get_by_text("on order_placed")).to_be_visible()
    engineer.keeps("07-registered")
    return experiment


def begins(story: Story) -> str:
    """Everything before the first visitor of the canary; returns the experiment."""
    engineer = story.engineer
    signs_in(engineer)
    finds_an_empty_project(story)
    sets_up(engineer, story.visitors.url)
    records_what_is_out_there(story)
    sends_out_a_canary(story)
    return registers_it(engineer)


def stands_so(story: Story, document: dict[str, Any]) -> None:
    """The evidence counts those who came, each in the arm whose build served them."""
    came, ordered = story.visitors.came, story.visitors.ordered
    for arm, shown in (("control", OLD), ("treatment", NEW)):
        units = document["arms"][arm]
        assert (units["units"], units["conversions"]) == (came[shown], ordered[shown]), arm


def block_of(at: datetime) -> datetime:
    seconds = BLOCK.total_seconds()
    return datetime.fromtimestamp(at.timestamp() // seconds * seconds, UTC)


@contextmanager
def open_page(engineer: Engineer, experiment: str) -> Generator[Page]:
    """The experiment's page, which must not be loaded anew meanwhile."""
    engineer.opens(f"/experiments/{experiment}")
    engineer.page.evaluate("window.same = true")
    yield engineer.page
    assert engineer.page.evaluate("window.same") is True


def stands_right(story: Story, *checks: str) -> None:
    """The checklist's lines turned green that are named."""

    def right() -> bool:
        story.engineer.page.reload()
        lines = story.engineer.page.locator(".checks li.keep strong").all_text_contents()
        return set(checks) <= set(lines)

    eventually(right, seconds=PATIENCE_MS / 1000)


def tells_the_same(engineer: Engineer, experiment: str) -> dict[str, Any]:
    """Sentence, figures, plot and contract of the page are those that programs are answered."""
    page = engineer.page
    contract = engineer.asks(f"/v1/reward/{experiment}")
    document = engineer.asks(f"/v1/reward/{experiment}/evidence")
    page.get_by_text("what programs read").click()
    assert json.loads(page.get_by_label("The verdict contract").inner_text()) == contract
    verdict = page.get_by_label("Verdict", exact=True).inner_text()
    assert as_shown(document["sentence"].partition(": ")[2]) in verdict
    (low, high), lift = contract["ci"], contract["lift"]
    readout = page.locator(".readout").inner_text()
    for end in (low, high, lift):
        assert as_shown(f"{100 * end:+.2f}") in readout, readout
    as_of = f"{datetime.fromisoformat(document['as_of']).astimezone(UTC):%d %b %H:%M}"
    assert f"{as_of} UTC" in readout
    drawing = page.locator(".drawing").first.text_content() or ""
    assert f"decided {as_of}" in drawing
    arms = {name: f"{arm['units']:,}" for name, arm in document["arms"].items()}
    units = f"{document['policy']['unit']}s"
    assert f"{arms['treatment']} {units} of treatment, {arms['control']} of control" in drawing
    return document


def as_shown(text: str) -> str:
    return text.replace("-", "−").replace(" %", "\u202f%")


@pytest.mark.deep
@pytest.mark.timeout(2400)
def test_a_change_is_tried_on_half_of_all_visitors_and_kept(new_story, folder) -> None:
    with running_service(folder / "data") as service:
        printed = (folder / "up.log").read_text()
        keys = dict(re.findall(r"^ +(write|public|project) +(\w+)", printed, re.MULTILINE))
        story = new_story(service.api_url, keys, SERVICE_DATA_DIR=str(service.data_dir))
        engineer, visitors = story.engineer, story.visitors
        experiment = begins(story)

        # Some of the five minutes must be left, so that all of them come in a block.
        waits_until(block_of(now() + timedelta(seconds=100)))
        visitors.come(54)
        first_ends = block_of(now()) + BLOCK
        engineer.opens("")
        stands_right(story, *AT_ONCE)
        engineer.keeps("08-traffic")

        waits_until(first_ends)
        visitors.come(66)
        second_ends = first_ends + BLOCK
        assert now() < second_ends, "they took longer than a block"
        stands_right(story, *AT_ONCE, *ONCE_CLOSED)
        engineer.keeps("09-all-right", everywhere=True)

        with open_page(engineer, experiment) as page:
            expect(page.get_by_text("First look", exact=True)).to_be_visible(timeout=PATIENCE_MS)
            engineer.keeps("10-waits")
            waits_until(first_ends + WINDOW + GRACE)
            verdict = page.get_by_label("Verdict", exact=True)
            expect(verdict).to_contain_text("So far", timeout=PATIENCE_MS)
            expect(verdict).to_contain_text("Can’t say yet")
            engineer.keeps("11-first-look")
            waits_until(second_ends + WINDOW + GRACE)
            expect(verdict).to_contain_text("This verdict is final", timeout=PATIENCE_MS)
            expect(verdict).to_contain_text("Keep")
            expect(page.locator("figcaption")).to_contain_text("control, points.")
            engineer.keeps("12-decided-live")
        page.reload()
        engineer.keeps("13-decided", everywhere=True)
        stands_so(story, tells_the_same(engineer, experiment))
        ships_it(story, experiment)


# What turns green with traffic, and what once its block has closed.
AT_ONCE = ("events", "commit on events", "commit known", "routes matched", "target seen")
ONCE_CLOSED = (
    "canary and control both get traffic",
    "clock skew",
    "crossover",
    "rejected, late, limited",
)


def ships_it(story: Story, experiment: str) -> None:
    """What pipelines and auditors read agrees; all get the change, which changes no verdict."""
    engineer = story.engineer
    contract = engineer.asks(f"/v1/reward/{experiment}")
    answer = engineer.types(f"deploy-reward wait {experiment} --timeout 1m --json")
    assert json.loads(answer) == contract
    audit = engineer.types(f"deploy-reward audit {experiment}", **engineer.store)
    assert audit.strip().endswith("equal to the byte.")
    engineer.types(
        'deploy-reward deploy "$SHA" --allocation 1',
        SHA=engineer.checkout.change,
        SERVICE_PROJECT_KEY=engineer.keys["write"],
    )
    story.shop.share = 9999
    engineer.opens("/deploys")
    row = engineer.page.get_by_role("listitem").filter(has_text=as_shown("50 % of traffic"))
    expect(row).to_contain_text("Keep")
    engineer.keeps("14-deploys")
    row.get_by_role("link", name="Order in one step").click()
    reach = engineer.page.get_by_label("Changed files that reach /checkout/[id]")
    expect(reach).to_contain_text("components/OrderButton.tsx")
    engineer.keeps("15-deploy")
    engineer.opens("")
    expect(engineer.page.get_by_role("heading", name="Decided")).to_be_visible()
    engineer.keeps("16-overview")
    assert engineer.asks(f"/v1/reward/{experiment}") == contract


@pytest.mark.nightly
def test_from_an_empty_project_to_a_canary_that_waits_for_its_first_look(new_story, store) -> None:
    """The story up to its first look, which a day brings that passes for the walk alone."""
    project = in_store(store, lambda connection: create_project(connection, "default"))
    settings = ApiSettings(database_url=store.url, secret=SECRET, checklist_seconds=0)
    with Served(app=create_app(settings)) as api:
        named = {"SERVICE_DATABASE_URL": store.url, "SERVICE_SECRET": SECRET.decode()}
        story = new_story(api.url, {kind.value: key for kind, key in project.keys.items()}, **named)
        engineer, visitors = story.engineer, story.visitors
        experiment = begins(story)

        waits_until(block_of(now() + timedelta(seconds=40)))
        visitors.come(4)
        ends = block_of(now()) + BLOCK
        sent = 2 * visitors.came.total() + visitors.ordered.total()
        eventually(lambda: in_store(store, what_came) == sent)
        run_pipeline(store.engine, as_of=ends + GRACE)
        engineer.opens("")
        stands_right(story, *AT_ONCE, *ONCE_CLOSED)
        # What needs nobody stands last.
        parts = engineer.page.get_by_role("heading", level=2).all_text_contents()
        assert parts == ["Running", "Last deploys", "Set-up"]
        engineer.keeps("09-all-right")

        with open_page(engineer, experiment) as page:
            look = page.locator("dt", has_text="First look").locator("+ dd time")
            # Its first block is the deploy's, which may have ended before a visitor came.
            began = engineer.asks(f"/v1/reward/{experiment}/registration")["starts_at"]
            first_ends = block_of(datetime.fromisoformat(began)) + BLOCK
            assert look.get_attribute("datetime") == f"{first_ends + WINDOW + GRACE:%FT%TZ}"
            engineer.keeps("10-waits")
            run_pipeline(store.engine, as_of=ends + timedelta(days=1) + WINDOW + GRACE)
            page.evaluate("dispatchEvent(new Event('focus'))")
            expect(page.get_by_label("Verdict", exact=True)).to_contain_text("So far")
            engineer.keeps("11-first-look")
        stands_so(story, engineer.asks(f"/v1/reward/{experiment}/evidence"))


def in_store(store: Store, work: Callable[[Connection], Any]) -> Any:
    with store.engine.begin() as connection:
        return work(connection)


def what_came(connection: Connection) -> int:
    # Beside the vitals, of which a page has more or less.
    count = select(func.count()).where(runtime_events.c.event.in_(("page_view", "order_placed")))
    return connection.execute(count).scalar_one()


def now() -> datetime:
    return datetime.now(UTC)


def waits_until(at: datetime) -> None:
    eventually(lambda: now() >= at, seconds=2 * BLOCK.total_seconds())
