"""The page of an experiment says what is known in each state of an experiment."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

import httpx2
import pytest

from storage.tenants.keys import Role
from storage.tenants.sign_ins import create_link
from tests.browser.dashboard.world import Served

pytestmark = pytest.mark.process


@dataclass(frozen=True)
class Told:
    """What a page must say of a state: its word, what is known, what to do, what it waits for."""

    word: str
    known: str
    advice: str
    waits: str = ""


STATES = {
    "shares": Told(
        "Can’t say: the split is not fair",
        "the arms do not get the shares that were declared",
        "check the router’s weights and the allocation in your deploys. Then close this experiment",
        "Nothing more what was counted so far keeps it from an answer",
    ),
    "crossing": Told(
        "Can’t say: the split is not fair",
        "units move between the arms",
        "make the router sticky",
        "Nothing more",
    ),
    "alone": Told(
        "Can’t say: no build to compare with",
        "No build without this change is served",
        "Nothing to do. Deploy the next change as a canary",
        "Both builds served at the same time; after 24 hours in which units come to either alone",
    ),
    "aliased": Told(
        "Can’t say: no build to compare with",
        "cannot be separated from what else differs",
        "Separate this change from 04feed5e: give each a share of traffic of its own",
        "Both builds served at the same time",
    ),
    "mean": Told(
        "Can’t say yet",
        "780 sessions counted. So far: not worse than −40.5 %, not better than +40.5 %."
        " About 5,579 sessions are needed to find a 20 % change.",
        "Leave the canary running",
        "Ends in any case",
    ),
    "mean_kept": Told("Keep", "spent rose by 0.1 USD per session", "Ship it: send all traffic"),
    "futility": Told(
        "No answer",
        "the difference, if any, is smaller than the 60 % that this project set",
        "The metric cannot say whether to ship it",
    ),
    "horizon": Told("No answer", "the horizon was reached without an answer", "register it anew"),
    "shares_ended": Told(
        "No answer",
        "the horizon was reached without an answer. What to do now",
        "check the router’s weights and the allocation in your deploys. Then register the change",
    ),
    "promoted": Told(
        "No answer", "everybody got the change, so", "keep a share of units on the old"
    ),
    "withdrawn": Told("No answer", "treatment was withdrawn", "Deploy it again as a canary"),
    "superseded": Told("No answer", "another change took over", "Look at that deploy’s experiment"),
    "shipped": Told("Keep", "At least +", "Done: promoted"),
    # A step against the advice: what is left to do follows from it.
    "dropped": Told("Keep", "Since then: withdrawn", "To ship it after all, deploy it again"),
    "closed": Told("No answer", "it was closed by hand", "Register the change again to go on"),
    "almost": Told(
        "Almost: keep",
        "to be sure that error did not get worse",
        "Leave the canary running until it is sure that error did not get worse",
        "Guardrails error, to be sure that it did not get worse",
    ),
    "breached": Told(
        "error got worse",
        "error got worse: 1.00 % → 20.00 %. Take it back. On order: 400 sessions counted. So far:",
        "Take it back: send no more traffic to this commit",
        "What it waits for Next look was due 07 Oct 2026",
    ),
    "quiet": Told(
        "Can’t say yet",
        "On order: nothing was measured yet. What to do now",
        "Send traffic to both builds",
        "First look was due 07 Oct 2026",
    ),
    "next": Told(
        "Can’t say yet",
        "It starts with the next deploy to production",
        "Deploy the change as a canary",
        "Its deploy the next deploy to production",
    ),
    "awaited": Told(
        "Can’t say yet",
        "It starts with the deploy of c0ffeec0ffee to production",
        "post the deploy to /v1/deploys",
        "Its deploy of c0ffeec0ff to production",
    ),
    "never": Told("No answer", "It was closed before its deploy came", "Register the change again"),
    "second": Told(
        "Can’t say yet",
        "Nothing was measured yet",
        "Send traffic to both builds",
        "Attempt 2: it counts units from its registration on",
    ),
}


def words(markup: str) -> str:
    """The text of a page, in a line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", markup)).split())


def part(page: str, name: str) -> str:
    inner = page.partition(f'data-part="{name}"')[2].partition(">")[2]
    return words(inner.partition('<div class="part"')[0].partition("<figure")[0])


@pytest.fixture(scope="module")
def reader(world) -> Iterator[httpx2.Client]:
    """Somebody who signed in to the gallery's project, without a browser."""
    served: Served = world.gallery.story
    with served.store.engine.begin() as connection:
        code = create_link(connection, served.project.project_id, Role.READ)
    own = {"Sec-Fetch-Site": "same-origin"}
    with httpx2.Client(base_url=world.url) as client:
        answer = client.post("/dashboard/sign-in", data={"secret": code}, headers=own)
        assert answer.status_code == 303
        yield client


def test_every_state_of_the_gallery_is_told_here(world) -> None:
    assert set(world.gallery.experiments) == set(STATES)


@pytest.mark.parametrize("state", STATES)
def test_a_page_says_what_is_known_what_to_do_and_what_it_waits_for(reader, world, state) -> None:
    expected = STATES[state]
    page = reader.get(world.gallery.path(state)).text
    verdict, progress = part(page, "verdict"), part(page, "progress")
    assert verdict.startswith(f"{expected.word} ")
    assert expected.known in verdict
    _, _, advice = verdict.partition("What to do now")
    assert expected.advice in advice
    contract = world.gallery.story.contract(world.gallery.experiments[state])
    decided = contract["power_state"]["decided"]
    assert ("This verdict is final" in verdict) is decided
    if decided:
        assert "What it waits for" not in progress
    else:
        assert expected.waits in progress
        assert "Ends in any case" in progress or state in ("quiet", "second")
    assert contract["experiment_id"] in part(page, "contract")


def test_a_sentence_excludes_nothing_that_is_impossible_or_not_the_change_s_alone(
    reader, world
) -> None:
    known: list[str] = []
    for state in ("breached", "mean", "shares", "shares_ended", "aliased", "crossing", "horizon"):
        answer = reader.get(f"{world.gallery.path(state)}/evidence")
        document = answer.json()
        bounds = document["known"]["sentence"]
        assert bounds in document["sentence"]
        assert document["sentence"].count("So far:") == bool(bounds)
        assert bounds == "" or document["known"]["not_worse_than"] is not None
        if document["policy"]["target"]["kind"] == "conversion":
            assert not re.search(r"-\d{3}", bounds), "nothing falls by more than all of it"
        if bounds:
            known.append(state)
    assert known == ["breached", "mean", "horizon"]


def test_a_list_by_state_shows_its_experiments_alone_with_progress_and_age(reader) -> None:
    running = reader.get("/dashboard/experiments?state=running").text
    decided = reader.get("/dashboard/experiments?state=decided").text
    every = reader.get("/dashboard/experiments").text
    ids = {
        name: set(re.findall(r'"/dashboard/experiments/(exp_\w+)"', page))
        for name, page in (("running", running), ("decided", decided), ("every", every))
    }
    assert ids["running"]
    assert ids["decided"]
    assert not ids["running"] & ids["decided"]
    assert ids["running"] | ids["decided"] >= ids["every"]
    assert re.search(r'<progress aria-label="[\d,]+ of about [\d,]+ units"', running)
    assert "<progress" not in decided
    assert "<time" in running
    assert reader.get("/dashboard/experiments?state=other").status_code == 404


def test_what_is_no_fair_comparison_is_given_no_size_and_no_value(reader, world) -> None:
    for state in ("shares", "aliased", "crossing"):
        page = reader.get(world.gallery.path(state)).text
        for name in ("verdict", "evidence", "looks"):
            # A share of units is no size of the change's.
            assert not re.search(r"[+−]\d[\d.]* ?(points|%)", part(page, name)), (state, name)
        assert "order target unfair comparison" in part(page, "arms")
        assert not re.search(r"[+−]\d", part(page, "arms").partition("guardrail")[0])
        assert 'class="drawing' not in page
        assert "no size of the difference is shown" in part(page, "evidence")
        assert "True difference between" not in page
        assert "Best estimate" not in page
        assert "about" not in part(page, "progress")
    for state in ("shares", "aliased"):
        page = reader.get(world.gallery.path(state)).text
        assert "Known once both builds can be compared fairly" in part(page, "value")
    listed = reader.get("/dashboard/experiments").text
    lines = [words(line) for line in re.findall(r"<li>.*?</li>", listed, re.DOTALL)]
    sized = {line.split(" order ")[0] for line in lines if "relative to control" in line}
    assert "A calmer start page" in sized
    assert not {"Prefetch the next page", "Bigger buttons", "Show prices with tax"} & sized
    shares = part(reader.get(world.gallery.path("shares")).text, "verdict")
    # The button is below: nobody types a request on a page.
    assert "Then close this experiment and register the change again" in shares


def test_a_best_estimate_stands_beside_what_was_measured_and_says_its_moment(reader, world) -> None:
    kept = part(reader.get(world.gallery.path("mean_kept")).text, "verdict")
    assert "Best estimate" in kept
    assert re.search(r"Best estimate \S+ %? ?\S+.* at the decision", kept)
    assert kept.index("At least +") < kept.index("Best estimate") < kept.index("Measured")
    assert kept.count("true difference between") == 1
    assert "leave 10 % of units on the old build for 7 days" in kept
    assert "the effect is measured afresh: 420 sessions so far" in kept
    shipped = part(reader.get(world.gallery.path("shipped")).text, "verdict")
    # The sentence's interval and the figures' are the same.
    low = re.search(r"of control’s 10.00 %\); 95 % sure: between \+(\S+) points", shipped)
    assert low is not None
    least = f"+{10 * float(low[1]):.0f} %"
    assert f"At least {least} true difference between {least} and" in shipped
    assert "leave 10 %" not in shipped
    assert "measured afresh" not in shipped
    breached = part(reader.get(world.gallery.path("breached")).text, "verdict")
    assert "At least" not in breached
    assert re.search(r"Best estimate \S+ % \S+ points so far", breached)


def test_a_mean_tells_in_what_it_is_counted(reader, world) -> None:
    page = reader.get(world.gallery.path("mean_kept")).text
    assert "+0.1 USD per session" in part(page, "verdict")
    assert "intervals are in USD per session" in part(page, "looks")
    assert "Mean, USD" in part(page, "arms")


def test_a_guardrail_that_nothing_waits_for_is_not_called_unproven(reader, world) -> None:
    kept = part(reader.get(world.gallery.path("mean_kept")).text, "arms")
    assert "arrival guardrail no harm seen" in kept
    waiting = part(reader.get(world.gallery.path("almost")).text, "arms")
    assert "error guardrail not known yet" in waiting


def test_a_page_is_told_when_to_ask_again_also_while_nothing_changed(reader, world) -> None:
    path = f"{world.gallery.path('mean')}/live"
    known = {"Accept": "application/json", "If-None-Match": reader.get(path).headers["ETag"]}
    again = reader.get(path, headers=known)
    assert again.status_code == 304
    assert 5 <= int(again.headers["Retry-After"]) <= 60
