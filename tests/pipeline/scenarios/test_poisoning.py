"""The public key is in every browser: what its forger reaches, and what holds against him."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from storage.log.seen_commits import note_seen_commits
from storage.tenants.secret import Assignments, assignment_message, assignment_token
from tests.processes.api_process import eventually
from tests.repetition import also_nightly
from tests.world import ON_ORDERS, A, K, World

PAGE = Path(__file__).parents[3] / "docs" / "public-key.md"

UNITS = 200  # Of each arm, of the real traffic.
MINUTES = 50
BLOCK = timedelta(minutes=5)

Event = dict[str, Any]
_ALL_NAMED = text(
    "SELECT NOT EXISTS (SELECT event FROM runtime_events EXCEPT SELECT event FROM seen_names)"
)


@dataclass(kw_only=True)
class Siege(World):
    """A canary at a half, its real traffic of the last hour, and a forger with the public key.

    Everything is sent now, by the keys that a browser and a server have; the grace is an hour, so
    that the last hour's blocks are still open. The tick comes hours later.
    """

    signed: bool = False
    experiment: str = ""
    sessions: dict[str, list[str]] = field(default_factory=dict)

    # --- The team ---------------------------------------------------------------------------

    def send_out(self, *, share: float | None = 0.5, **asked: Any) -> None:
        self.settings(locked=[], signed_assignments=self.signed, ofrep="browser")
        self.canary(share)
        self.experiment = self.register(treatment_commit=K, **asked)

    def traffic(self, rates: Mapping[str, tuple[float, float]]) -> None:
        """The real sessions; of each event control's rate and treatment's."""
        for number, commit in enumerate((A, K)):
            self.sessions[commit] = [f"real-{commit}-{i}" for i in range(UNITS)]
            own = {event: pair[number] for event, pair in rates.items()}
            self.post_events(self.served(self.visits(self.sessions[commit], commit, own)))

    def users_pay(self) -> list[str]:
        """A tenth of the real sessions sign in and pay, as the server says; their names."""
        payers = [(i, commit) for commit in (A, K) for i in range(0, UNITS, 10)]
        paid: list[Event] = []
        for i, commit in payers:
            when = (MINUTES - 2) * (i + 0.5) / UNITS
            member = {"user_ref": f"user-{commit}-{i}", "occurred_at": self.at(when + 1)}
            session = self.sessions[commit][i]
            self.post_events([{"event": "login", "session_id": session, **member}], trusted=True)
            amount = {"value": 900, "currency": "USD"}
            key = {"idempotency_key": f"paid-{commit}-{i}"}
            paid.append({"event": "trial_to_paid", "amount": amount, **key, **member})
        for begin in range(0, len(paid), 50):
            body = {"events": paid[begin : begin + 50]}
            assert self.post("/v1/revenue/events", body).status_code == 200
        return [event["user_ref"] for event in paid]

    def token(self, session: str, commit: str, flags: Mapping[str, bool] | None = None) -> str:
        key = Assignments(b"a secret of the tests, long enough").key(self.project_id, 1)
        message = assignment_message(
            environment="production", session_id=session, commit=commit, flags=flags
        )
        return assignment_token(key, message)

    def served(self, events: Iterable[Event]) -> Iterator[Event]:
        """These events as a page sends them that the router did serve."""
        for event in events:
            if self.signed and "commit" in event:
                token = self.token(event["session_id"], event["commit"], event.get("flags"))
                yield {**event, "assignment": token}
            else:
                yield event

    def visits(
        self, sessions: Sequence[str], commit: str | None, rates: Mapping[str, float]
    ) -> Iterator[Event]:
        """Sessions spread evenly over the time, each seen once; of each event exactly its rate."""
        for i, session in enumerate(sessions):
            when = (MINUTES - 2) * (i + 0.5) / len(sessions)
            visit = {"session_id": session} | ({"commit": commit} if commit else {})
            yield {**visit, "event": "page_view", "occurred_at": self.at(when)}
            for event, rate in rates.items():
                if int((i + 1) * rate) > int(i * rate):
                    yield {**visit, "event": event, "occurred_at": self.at(when + 0.5)}

    # --- The forger -------------------------------------------------------------------------

    def drawn(self, session: str) -> Event:
        """What remote evaluation says of a session that the forger names: its build, and more."""
        body = {"context": {"targetingKey": session}}
        path = "/ofrep/v1/evaluate/flags/commit"
        return self.post(path, body, headers=self.public).json()["metadata"]

    def forge(self, events: Iterable[Event]) -> None:
        """Sends events with the public key, with all that can be had instead of a token."""
        claims = cycle(
            [
                {},
                {"assignment": "0" * 64},
                {"assignment": self.token("another", K)},
                {"assignment": "ß∂ƒ"},
            ]
        )
        self.post_events({**claim, **event} for event, claim in zip(events, claims, strict=False))

    def post_events(self, events: Iterable[Event], *, trusted: bool = False) -> None:
        key = self.write if trusted else self.public
        waiting = list(events)
        for begin in range(0, len(waiting), 500):
            batch = waiting[begin : begin + 500]
            answer = self.post("/v1/events", {"events": batch}, headers=key)
            assert answer.status_code == 202, answer.text
            assert answer.json()["rejected"] == []

    # --- The answer -------------------------------------------------------------------------

    def verdict(self) -> str:
        """The verdict, or why there is none; the gates that are up, and what is breached."""
        # The API notes the names of events after its answer, and the evidence reads them.
        eventually(lambda: self.in_store(lambda store: store.scalar(_ALL_NAMED)))
        self.tick(minutes=MINUTES + 4 * 60)
        self.require_the_counts_to_add_up()
        contract = self.contract(self.experiment)
        word = contract["abstain_reason"] or contract["verdict"]
        gates = self.evidence(self.experiment)["gates"]["interacting_because"]
        shown = ", ".join(
            [*gates, *(f"{name} breached" for name in contract["guardrail_breaches"])]
        )
        return f"{word} ({shown})" if shown else word

    def exposed(self) -> tuple[int, int]:
        """The exposed units of control and treatment."""
        with self.store.engine.connect() as connection:
            rows = connection.execute(
                text("SELECT arm, count(*) FROM exposures_in_words GROUP BY arm")
            )
            units = {row.arm: row.count for row in rows}
        return units["control"], units["treatment"]


@pytest.fixture
def siege(service) -> Siege:
    windows = {"order": {"window_seconds": 300}, "trial_to_paid": {"window_seconds": 3600}}
    service.settings(grace_seconds=3600, metrics=windows)
    now = datetime.now(UTC)
    begin = now - (now - datetime(1970, 1, 1, tzinfo=UTC)) % BLOCK - timedelta(minutes=MINUTES)
    return Siege(store=service.store, client=service.client, project=service.project, begin=begin)


# --- Attacks --------------------------------------------------------------------------------


def forged(number: int) -> list[str]:
    return [f"forged-{i}" for i in range(number)]


def orders(events: Iterable[Event]) -> Iterator[Event]:
    return (event for event in events if event["event"] == "order")


def orders_of_no_session(siege: Siege, number: int) -> Iterator[Event]:
    return orders(siege.visits(forged(number), None, {"order": 1.0}))


def sessions_of_treatment(siege: Siege, number: int) -> Iterator[Event]:
    return siege.visits(forged(number), K, {"order": 1.0})


def sessions_of_both_arms(siege: Siege, number: int, event: str = "order") -> Iterator[Event]:
    sessions = forged(number)
    yield from siege.visits(sessions[0::2], A, {})
    yield from siege.visits(sessions[1::2], K, {event: 1.0})


def sessions_that_were_drawn(siege: Siege, number: int) -> Iterator[Event]:
    drawn = {session: siege.drawn(session) for session in forged(number)}
    for commit, rates in ((A, {}), (K, {"order": 1.0})):
        sessions = [session for session, build in drawn.items() if build["commit"] == commit]
        for event in siege.visits(sessions, commit, rates):
            build = drawn[event["session_id"]]
            yield event | {name: build[name] for name in ("assignment",) if name in build}


def orders_of_known_sessions(siege: Siege, number: int) -> Iterator[Event]:
    for _ in range(number // (2 * UNITS)):
        yield from orders(siege.visits(siege.sessions[K], None, {"order": 1.0}))


def sessions_in_both_arms(siege: Siege, number: int) -> Iterator[Event]:
    for event in sessions_of_both_arms(siege, number):
        yield event
        yield {**event, "commit": A if event["commit"] == K else K}


def known_sessions_in_the_other_arm(siege: Siege, number: int) -> Iterator[Event]:
    for _ in range(number // (2 * UNITS)):
        for event in siege.visits(siege.sessions[A], K, {}):
            minute = timedelta(minutes=1)
            later = (datetime.fromisoformat(event["occurred_at"]) + minute).isoformat()
            yield {**event, "occurred_at": later}


def errors_of_treatment(siege: Siege, number: int) -> Iterator[Event]:
    return sessions_of_both_arms(siege, number, event="error")


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What the forger sends, and the experiment that he meets; no real effect unless it says so."""

    events: Callable[[Siege, int], Iterator[Event]]
    rates: Mapping[str, tuple[float, float]] = field(default_factory=lambda: {"order": (0.1, 0.1)})
    guardrails: Sequence[str] = ()
    share: float | None = 0.5


# By the words of the page's table.
ATTACKS = {
    "conversions of sessions that don't exist": Attack(events=orders_of_no_session),
    "sessions of treatment that convert": Attack(events=sessions_of_treatment),
    "the same, where no share is declared": Attack(events=sessions_of_treatment, share=None),
    "sessions of both arms in the declared share, treatment converting": Attack(
        events=sessions_of_both_arms
    ),
    "sessions that remote evaluation drew, treatment converting": Attack(
        events=sessions_that_were_drawn
    ),
    "conversions of real sessions whose ids are known": Attack(events=orders_of_known_sessions),
    "sessions that claim both arms": Attack(events=sessions_in_both_arms),
    "real sessions, claimed for the other arm": Attack(events=known_sessions_in_the_other_arm),
    "sessions of both arms, treatment with errors, while the change is good": Attack(
        events=errors_of_treatment, rates={"order": (0.1, 0.4)}, guardrails=("error",)
    ),
}
# Ten times as large with the other tests: with and without traffic of others.
_QUICK = (
    "sessions of treatment that convert",
    "real sessions, claimed for the other arm",
    "conversions of real sessions whose ids are known",
)
_IN_THE_GATE = (
    "sessions of treatment that convert",
    "sessions of both arms in the declared share, treatment converting",
)
SCALES = [10, pytest.param(100, marks=pytest.mark.deep)]


def large_attacks(*marks: pytest.MarkDecorator) -> list[Any]:
    """Returns the larger attacks: the quick ones with these marks, the others in the long form."""
    deep = [pytest.mark.deep, pytest.mark.timeout(1800)]
    return [
        pytest.param(name, scale, marks=marks if name in _QUICK and scale == 10 else deep)
        for name, scale in product(ATTACKS, (10, 100))
    ]


def answers_of_the_page() -> dict[str, dict[str, str]]:
    """By attack, what stands in each column of the page's first table."""
    (table,) = re.findall(r"^\| attack .*?\n\n", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    lines = re.findall(r"^\|(.+)\|$", table, re.MULTILINE)
    rows = [[cell.strip().replace("`", "") for cell in line.split("|")] for line in lines]
    heads = rows[0]
    return {row[0]: dict(zip(heads, row, strict=True)) for row in rows[2:]}


def test_the_page_names_every_attack() -> None:
    assert answers_of_the_page().keys() == ATTACKS.keys()


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        *also_nightly(
            [(name, 1) for name in _IN_THE_GATE],
            [(name, 1) for name in ATTACKS if name not in _IN_THE_GATE],
        ),
        *large_attacks(pytest.mark.nightly),
    ],
)
def test_an_attack_is_answered_as_the_page_says(siege, name, scale) -> None:
    attack = ATTACKS[name]
    siege.send_out(target_metric="order", guardrails=list(attack.guardrails), share=attack.share)
    siege.traffic(attack.rates)
    siege.forge(attack.events(siege, scale * 2 * UNITS))
    assert siege.verdict() == answers_of_the_page()[name][f"{scale}×"]


@pytest.mark.parametrize(("name", "scale"), large_attacks())
def test_signed_assignments_answer_an_attack_as_the_page_says(siege, name, scale) -> None:
    attack = ATTACKS[name]
    siege.signed = True
    siege.send_out(target_metric="order", guardrails=list(attack.guardrails), share=attack.share)
    siege.traffic(attack.rates)
    siege.forge(attack.events(siege, scale * 2 * UNITS))
    assert siege.verdict() == answers_of_the_page()[name]["10× and 100×, signed"]
    assert siege.exposed() == (UNITS, UNITS)


def test_remote_evaluation_signs_for_no_session_that_nobody_served(siege) -> None:
    siege.signed = True
    siege.send_out(target_metric="order", guardrails=[])
    siege.traffic({"order": (0.1, 0.1)})
    siege.forge(sessions_that_were_drawn(siege, 2 * UNITS))
    assert siege.verdict() == "power"
    assert siege.exposed() == (UNITS, UNITS)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.nightly
def test_who_was_really_served_can_forge_what_he_did(siege, scale) -> None:
    siege.signed = True
    siege.send_out(target_metric="order", guardrails=[])
    siege.traffic({"order": (0.1, 0.1)})
    # So many times he asked the router, and half of the times he drew the treatment.
    siege.post_events(siege.served(sessions_of_both_arms(siege, scale * 2 * UNITS)))
    assert siege.verdict() == "keep"


def test_builds_that_a_public_key_invents_hide_none_that_a_server_names(siege) -> None:
    seen = text("SELECT environment, commit_sha FROM seen_commits WHERE project_id = :id")
    for environment in ("production", *(f"invented-{number}" for number in range(60))):
        siege.post_events(
            {"event": "order", "session_id": f"s-{n}", "environment": environment}
            | {"commit": f"{n // 2:07x}"}
            for n in range(50)
        )
    siege.post_events([{"event": "order", "session_id": "s", "commit": K}], trusted=True)
    closed = siege.begin + timedelta(minutes=120)
    siege.in_store(lambda store: note_seen_commits(store, as_of=closed))
    rows = siege.in_store(lambda store: store.execute(seen, {"id": siege.project_id}).all())
    assert ("production", K) in [tuple(row) for row in rows]
    assert len(rows) <= 1000


def test_a_token_is_worth_one_unit_in_one_arm(siege) -> None:
    siege.signed = True
    siege.send_out(target_metric="order", guardrails=[])
    siege.traffic({"order": (0.1, 0.1)})
    own = [{"session_id": "mine", "commit": A, "assignment": siege.token("mine", A)}]
    moved = [
        *({**own[0], "session_id": f"mine-{i}"} for i in range(100)),
        {**own[0], "commit": K},
        {**own[0], "flags": {"new": True}},
        {**own[0], "environment": "staging"},
        {"session_id": "mine", "assignment": siege.token("mine", A)},
    ]
    replayed = [{**event, "event": "page_view"} for event in (own * 100 + moved)]
    siege.post_events(
        {**event, "occurred_at": siege.at(1 + i / 100)} for i, event in enumerate(replayed)
    )
    assert siege.verdict() == "power"
    assert siege.exposed() == (UNITS + 1, UNITS)
    evidence = siege.evidence(siege.experiment)
    counts = evidence["counts"]
    assert (counts["crossover"], counts["unsigned"]) == (0, 100)
    assert "unsigned" in evidence["warnings"]


def test_a_server_s_events_count_without_a_token(siege) -> None:
    siege.signed = True
    siege.send_out(target_metric="order", guardrails=[])
    for commit in (A, K):
        siege.post_events(
            siege.visits([f"{commit}-{i}" for i in range(50)], commit, {}), trusted=True
        )
    assert siege.verdict() == "power"
    assert siege.exposed() == (50, 50)


def test_a_flag_is_served_by_whoever_signs_it(siege) -> None:
    siege.signed = True
    siege.settings(signed_assignments=True, locked=[])
    siege.deploy(A, minutes=0)

    def flagged(event: Event, *, minutes: float) -> Event:
        on = {"flags": {"new": event["session_id"].endswith("on")}}
        return {**event, **on, "occurred_at": siege.at(minutes)}

    sessions = [f"{i}-{state}" for i in range(30) for state in ("on", "off")]
    siege.forge(flagged(event, minutes=1) for event in siege.visits(forged(30), A, {}))
    siege.post_events(siege.served(flagged(e, minutes=20) for e in siege.visits(sessions, A, {})))
    siege.post_events(flagged(event, minutes=21) for event in siege.visits(["late-on"], A, {}))
    flag = {"name": "new", "treatment": True}
    siege.experiment = siege.register(treatment_flag=flag, **ON_ORDERS)
    assert siege.verdict() == "power"
    # Nor did the forger say when the flag was first on.
    assert siege.exposed() == (30, 30)
    with siege.store.engine.connect() as connection:
        starts = connection.execute(text("SELECT starts_at FROM experiments")).scalar_one()
    assert starts.isoformat() == siege.at(20)


def claims(undefended: str) -> Any:
    """The answers where a project asks for neither defence, or for either."""
    return pytest.mark.parametrize(
        ("chosen", "answer"),
        also_nightly(
            [({"trusted_identity": True}, "power")],
            [({"signed_assignments": True}, "power"), ({}, undefended)],
        ),
        ids=["trusted identity", "signed assignments", "neither"],
    )


# So few users with so many sessions of a single arm are not what a router draws.
@claims("interacting (unit)")
@pytest.mark.nightly
def test_users_who_pay_are_claimed_for_real_sessions_of_treatment(siege, chosen, answer) -> None:
    siege.settings(**chosen)
    siege.signed = "signed_assignments" in chosen
    siege.send_out(target_metric="trial_to_paid", guardrails=[])
    siege.traffic({})
    users = siege.users_pay()
    claimed = siege.visits(siege.sessions[K], None, {})
    siege.forge(
        {**event, "event": "login", "user_ref": users[i % len(users)]}
        for i, event in enumerate(claimed)
    )
    assert siege.verdict() == answer


@claims("keep")
def test_users_who_pay_are_claimed_for_treatment(siege, chosen, answer) -> None:
    siege.settings(**chosen)
    siege.signed = "signed_assignments" in chosen
    siege.send_out(target_metric="trial_to_paid", guardrails=[])
    siege.traffic({})
    users = iter(siege.users_pay())
    siege.forge(
        event if event["commit"] == A else {**event, "user_ref": next(users, "nobody")}
        for event in sessions_of_both_arms(siege, 20 * UNITS)
    )
    assert siege.verdict() == answer
