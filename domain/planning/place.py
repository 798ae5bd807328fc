"""A place: a flag of every build, or a canary's share, that a change has until it is answered."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from domain.document import Document, Moment
from domain.planning.boundary import Boundary
from domain.planning.design import Design
from domain.planning.requirement import excluding_sessions

PlaceState = Literal["queued", "placed", "ended"]
PlaceKind = Literal["flag", "canary"]
PlaceOutcome = Literal[
    "keep", "rollback", "iterate", "harmless", "unanswered", "given_back", "refused"
]
PlaceAction = Literal["wait", "serve", "promote", "withdraw", "none"]
# Defaults of a request: the harm that it accepts, and how long it waits.
ACCEPT_HARM, PATIENCE_HOURS = 0.2, 24.0
# A flag is on for half of the units, independently of every other.
FLAG_SHARE = 0.5
# So much of the traffic stays with the build that users have: canaries are compared with it.
_STANDING = 0.5
# Shares of a canary, smallest first: many small canaries give more answers a day than few large.
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_USUAL_SHARE = 0.1
_ACTIONS: dict[PlaceOutcome, PlaceAction] = {
    "keep": "promote",
    "harmless": "promote",
    "rollback": "withdraw",
    "iterate": "withdraw",
    "unanswered": "withdraw",
}


class Place(Document, frozen=True, kw_only=True):
    """A change's place, or its position in the queue."""

    place_id: str
    change: Annotated[str, Meta(description="The change: a pull request, a commit or a flag.")]
    environment: str
    metric: Annotated[str | None, Meta(description="Its target; null for the project's default.")]
    flag: Annotated[str | None, Meta(description="The flag that it is behind.")]
    commit: Annotated[str | None, Meta(description="The commit that brings it.")]
    actor: str | None
    state: PlaceState
    position: Annotated[int | None, Meta(description="In the queue, from 1.")]
    kind: Annotated[PlaceKind | None, Meta(description="What it got; null while queued.")]
    share: Annotated[float | None, Meta(description="Of units, to serve the change to.")]
    expected_hours: Annotated[
        float | None,
        Meta(
            description="Of traffic, until a change that does nothing is shown to lose no more than"
            " accept_harm, in 80 % of runs; null where no rate was measured yet."
        ),
    ]
    accept_harm: float
    patience_hours: float
    experiment_id: Annotated[
        str | None, Meta(description="Of a canary null until its deploy is posted.")
    ]
    asked_at: Moment
    placed_at: Moment | None
    ended_at: Moment | None
    outcome: Annotated[
        PlaceOutcome | None,
        Meta(
            description="The verdict; harmless: a loss beyond accept_harm is excluded; unanswered:"
            " it ended without an answer, or patience did; given_back: by hand; refused: no"
            " experiment can be made of it."
        ),
    ]
    action: Annotated[PlaceAction, Meta(description="What to do now; wait: ask again later.")]
    sentence: Annotated[str, Meta(description="The same for people.")]


class PlaceList(Document, frozen=True, kw_only=True):
    """Places, the last changed first."""

    places: tuple[Place, ...]


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The traffic of an environment, and the hours until it answers a change.

    Attributes:
        rate: The share of them that converts on the standing build; None where it is not known.
    """

    sessions_per_day: float
    rate: float | None
    boundary: Boundary

    def hours(self, kind: PlaceKind, share: float, accept_harm: float) -> float | None:
        """Returns the hours until a harmless change is answered; None where nothing tells."""
        if self.rate is None or not 0 < self.rate < 1 or self.sessions_per_day <= 0:
            return None
        compared = 1.0 if kind == "flag" else share + _STANDING
        design = Design(
            sessions_per_day=self.sessions_per_day * compared,
            rate=self.rate,
            share=share / compared,
        )
        needed = excluding_sessions(design, accept_harm, self.boundary)
        return 24 * needed / design.sessions_per_day

    def canary_share(self, accept_harm: float, patience_hours: float) -> float:
        """Returns the smallest share that is answered in half of the patience."""
        for share in _SHARES:
            hours = self.hours("canary", share, accept_harm)
            if hours is None:
                return _USUAL_SHARE
            if hours <= patience_hours / 2:
                return share
        return _SHARES[-1]


def canary_room(taken: float) -> float:
    """Returns the share of units that further canaries may get, beside those that have some."""
    return 1 - _STANDING - taken


def place_action(state: PlaceState, outcome: PlaceOutcome | None) -> PlaceAction:
    """Returns the caller's next step."""
    if outcome is not None:
        return _ACTIONS.get(outcome, "none")
    return "serve" if state == "placed" else "wait"


def place_sentence(
    change: str,
    *,
    position: int | None,
    flag: str | None,
    share: float | None,
    expected_hours: float | None,
    outcome: PlaceOutcome | None,
    accept_harm: float,
    detail: str | None,
) -> str:
    """Returns a place in a sentence, with the next step."""
    if outcome is not None:
        return {
            "keep": f"Promote {change}: keep.",
            "harmless": f"Promote {change}: a loss beyond {100 * accept_harm:g} % is excluded.",
            "rollback": f"Withdraw {change}: rollback.",
            "iterate": f"Withdraw {change}: iterate, it harms a guardrail.",
            "unanswered": f"Withdraw {change}: no answer in the time that it had.",
            "given_back": f"The place of {change} was given back.",
            "refused": f"{change} cannot be measured: {detail}.",
        }[outcome]
    if position is not None:
        return f"{change} waits for a place, as number {position}."
    takes = "" if expected_hours is None else f" An answer takes about {expected_hours:.2g} hours."
    if flag is not None:
        return f"Turn flag {flag} on for {100 * (share or 0):g} % of units.{takes}"
    return (
        f"Serve {change} to {100 * (share or 0):g} % of units, and post its deploy with"
        f" allocation {share:g}.{takes}"
    )
