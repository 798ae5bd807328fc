"""The draw: flags that the published draw gives are held against it, and split no strata."""

import hashlib
from collections.abc import Callable

import pytest

from tests.repetition import also_nightly
from tests.world import DAY, A, K

UNITS = 2400


def as_published(session: str, flag: str) -> bool:
    """The arm that docs/routing.md publishes of a flag."""
    return hashlib.sha256(f"{flag}=true:{session}".encode()).hexdigest() < "8"


def of_cart(session: str) -> bool:
    """The arm of another flag."""
    return as_published(session, "cart")


def by_another_salt(session: str) -> bool:
    return as_published(session, "another")


def with_a_leak(session: str) -> bool:
    """As published, but a twentieth of control has the flag too."""
    return as_published(session, "search") or (as_published(session, "leak") and session[-1] == "7")


def as_drawn(session: str) -> bool:
    return as_published(session, "search")


def of_canary(session: str) -> bool:
    """Whether a router of its own sends the session to the canary."""
    return hashlib.sha256(session.encode()).hexdigest() < "8"


@pytest.fixture
def served(story) -> Callable[..., dict[str, str]]:
    """Serves two flags to the same sessions, and returns the experiments of both."""

    def serve(
        search: Callable[[str], bool],
        *,
        verified: bool = True,
        canary: bool = False,
        days: int = 28,
    ) -> dict[str, str]:
        story.settings(verified_draws=verified, locked=[])
        story.deploy(A, minutes=-DAY)
        if canary:
            story.deploy(K, 0.5, minutes=0, base=A)
        for number, session in enumerate(story.new_sessions(UNITS)):
            flags = {"cart": of_cart(session), "search": search(session)}
            commit = K if canary and of_canary(session) else A
            visit = {"session_id": session, "commit": commit, "flags": flags}
            minute = 1 + 600 * number / UNITS
            story.events.append({**visit, "event": "page_view", "occurred_at": story.at(minute)})
            if number % 3 == 0:
                story.events.append(
                    {**visit, "event": "order", "occurred_at": story.at(minute + 1)}
                )
        story.send()
        experiments: dict[str, str] = {}
        for name in ("search", "cart"):
            flag = {"name": name, "treatment": True}
            experiments[name] = story.register(treatment_flag=flag)
            story.settings(horizon_days=days)
        if canary:
            experiments["canary"] = story.register(treatment_commit=K)
        story.tick(minutes=DAY)
        return experiments

    return serve


@pytest.mark.parametrize("verified", also_nightly([True], [False]))
def test_flags_that_are_drawn_as_published_are_pooled_and_counted(story, served, verified) -> None:
    experiments = served(as_drawn, verified=verified)
    for experiment in experiments.values():
        evidence = story.evidence(experiment)
        if verified:
            # The last block has no look yet.
            assert UNITS - 10 < evidence["draw"]["verified"] <= UNITS
            assert evidence["draw"]["mismatched"] == 0
        else:
            assert "draw" not in evidence
        assert evidence["gates"]["interacting_because"] == []
    story.require_the_counts_to_add_up()
    # The search was under test when the cart came.
    strata = {stratum for _, stratum, *_ in story.cells(experiments["cart"])}
    assert len(strata) == (1 if verified else 2)


@pytest.mark.parametrize(
    ("search", "cart_holds"),
    also_nightly([(with_a_leak, False)], [(of_cart, True), (by_another_salt, False)]),
)
def test_a_flag_that_is_off_its_draw_holds_and_so_do_flags_that_share_its_units(
    story, served, search, cart_holds
) -> None:
    experiments = served(search)
    causes = {
        name: story.evidence(experiment)["gates"]["interacting_because"]
        for name, experiment in experiments.items()
    }
    assert causes == {"cart": ["draw"] if cart_holds else [], "search": ["draw"]}
    assert story.contract(experiments["search"])["abstain_reason"] == "interacting"
    checks = story.evidence(experiments["cart"])["gates"]["checks"]
    (draw,) = (check for check in checks if check["cause"] == "draw")
    assert ("the arms have search unequally" in draw["detail"]) is cart_holds
    story.require_the_counts_to_add_up()


@pytest.mark.parametrize("search", also_nightly([of_canary], [as_drawn]))
@pytest.mark.nightly
def test_a_canary_is_pooled_over_drawn_flags_and_holds_where_one_follows_it(
    story, served, search
) -> None:
    canary = served(search, canary=True)["canary"]
    evidence = story.evidence(canary)
    assert len({stratum for _, stratum, *_ in story.cells(canary)}) == 1
    assert "draw" not in evidence
    assert evidence["gates"]["interacting_because"] == ([] if search is as_drawn else ["draw"])
    story.require_the_counts_to_add_up()


@pytest.mark.nightly
def test_a_verdict_stays_what_it_was_where_a_flag_beside_it_leaves_its_draw_later(
    story, served
) -> None:
    for number, session in enumerate(story.new_sessions(600)):
        visit = {"session_id": session, "commit": A, "flags": {"search": session[-1] in "01234"}}
        minute = DAY + 120 + number / 10
        story.events.append({**visit, "event": "page_view", "occurred_at": story.at(minute)})
    experiments = served(as_drawn, canary=True, days=1)
    story.tick(minutes=DAY + 90)
    before = {name: story.evidence(experiments[name]) for name in ("canary", "cart")}
    assert all(evidence["ended_because"] == "horizon" for evidence in before.values())
    story.tick(minutes=DAY + 300)
    assert story.evidence(experiments["search"])["gates"]["interacting_because"] == ["draw"]
    for name, evidence in before.items():
        assert story.evidence(experiments[name])["gates"] == evidence["gates"]
    story.require_the_counts_to_add_up()
